/**
 * Combine: adds up the partial rows that the experts of several ranks made of a token, in f32, and writes the
 * token's row once. One launch, and two ways to bring the rows home:
 *
 * - **pull**: one rendezvous at the head says that the experts of every rank are done; then each rank reads the
 *   partial rows of its tokens from the `output` sections of its peers. Half the window of the other way.
 * - **push**: each rank writes its experts' rows into the `returned` sections of their sources, and each source reads
 *   them there. Stores cross NVLink faster than loads, and there is no rendezvous at all: a row says by itself that
 *   it has come. The last word of every 16 bytes of `returned` is EMPTY until the row's bytes replace it, all 16 at
 *   once; whoever read them makes them EMPTY again. EMPTY is a NaN that no sum of numbers has; an expert that
 *   writes it gets another NaN.
 *
 * window.ts says why `output` and `returned` may be written again in the next round.
 */

import { kernel, peers, pointer } from '../../lang/index.js';
import { dtypes, outputRowBytes } from '../../layer/index.js';
import { operations } from '../common/failure.js';
import { expertOwner, protocol } from './protocol.js';
import { emptyWord, pushPiece } from './push.js';
import { sumTree } from './tree.js';
import { localExperts, type OneSidedShape, type OneSidedWindow } from './window.js';

export function combineKernel(shape: OneSidedShape, window: OneSidedWindow) {
  const { arrive, awaitPeers, countCombine, failed, patience, releaseSlots } = protocol(
    window,
    shape,
    'combined',
    operations.combine,
  );
  const { dtype } = shape.output;
  const push = shape.combine.way === 'push';
  // Rows of whole 16-byte vectors move as such; others element by element, and are pulled.
  const vectors = outputRowBytes(shape) % 16 === 0;
  const lanes = vectors ? 16 / dtypes[dtype].size : 1;
  const units = shape.output.hidden / lanes;
  return kernel(
    {
      name: 'one_sided_combine',
      maxThreads: shape.combine.threads,
      params: {
        win: peers(window),
        topkIds: pointer('i32'),
        /** [tokens][row], where the sums go. */
        out: pointer(dtype),
        tokens: 'u32',
        limit: 'u32',
      },
      using: {
        RANKS: shape.ranks,
        K: shape.topK,
        MAX_TOKENS: shape.maxTokens,
        BLOCKS: shape.combine.blocks,
        PARTS: shape.combine.parts,
        COUNTS: shape.counts,
        LOCAL_EXPERTS: localExperts(shape),
        DTYPE: dtype,
        VECTORS: vectors,
        LANES: lanes,
        UNITS: units,
        PART_UNITS: Math.ceil(units / shape.combine.parts),
        // A token has at most that many partial rows.
        ...sumTree(Math.min(shape.topK, shape.ranks)),
        PUSH: push,
        /** Pieces that pushing runs ahead of adding up, so that a block never waits for what it could still send. */
        AHEAD: push ? shape.combine.ahead : 0,
        EMPTY: emptyWord,
        NEGATIVE_ZERO: dtype === 'f32' ? 0x80000000 : 0x80008000,
        NEGATIVE_ZERO_F32: 0x80000000,
        OPERATION: operations.combine,
        ownerOf: expertOwner(shape),
        arrive,
        awaitPeers,
        countCombine,
        failed,
        patience,
        pushPiece: pushPiece(shape, window),
        releaseSlots,
      },
    },
    (g, { win, topkIds, out, tokens, limit }, u) => {
      const mine = win.at(g.rank);
      const epoch = u.countCombine({ win });
      // What the kernels before this one left is read from here on.
      g.awaitPrevious();
      g.releaseNext();
      let patience = u.patience({ win, limit });

      if (u.PUSH) {
        if (g.blockIdx.x === u.BLOCKS) {
          u.releaseSlots({ win, epoch });
          return;
        }
      } else {
        // This rank's experts wrote `output` before this launch began (stream order), so each block may vouch for it.
        u.arrive({ win, epoch });
        u.awaitPeers({ win, epoch, limit: patience });
      }

      // Pieces of rows, as in dispatch, block b taking every BLOCKS-th: b of the expert's rank pushes what b of the
      // source's adds up.
      const pieces = u.MAX_TOKENS * u.PARTS;
      const lag = u.AHEAD * u.BLOCKS;
      for (let step = g.blockIdx.x; step < pieces + lag; step += u.BLOCKS) {
        const piece = step - lag;
        const token = piece / u.PARTS;
        // Lane k holds route k of the token to add up, on its way while another is pushed.
        let id = g.i32(-1);
        if (step >= lag && token < tokens && g.laneId < u.K) id = g.load(topkIds.at(token * u.K + g.laneId));

        if (u.PUSH) {
          if (step < pieces) u.pushPiece({ win, piece: step, epoch });
        }

        if (step >= lag && token < tokens) {
          const part = piece % u.PARTS;
          const slot = g.rank * u.MAX_TOKENS + token;

          // The owners of this token's routes, each once, in order of first appearance: the order of the sum.
          const owner = u.ownerOf({ expert: id });
          const same = g.warp.match(owner);
          let left = g.warp.ballot(owner < u.RANKS && g.ffs(same) - 1 === g.laneId);
          const count = g.popc(left);
          const from = g.registers('u32', u.ROWS);
          for (const r of g.unroll(u.ROWS)) {
            from[r] = g.warp.shuffle(owner, g.max(g.ffs(left), g.u32(1)) - 1);
            left &= left - 1;
          }

          // -0 changes nothing that it is added to, so it stands for the rows that a token has not; no rows at all sum to +0.
          const nothing = g.u32(count === 0 ? 0 : u.NEGATIVE_ZERO);
          const absent = g.pack('u32', [nothing, nothing, nothing, nothing]);

          const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
          for (let i = part * u.PART_UNITS + g.threadIdx.x; i < end; i += g.blockDim.x) {
            const at = slot * u.UNITS + i;
            // A pairwise tree over the rows, in groups that fit in registers.
            const sums = g.registers('f32', u.GROUPS * u.LANES);
            for (const group of g.unroll(u.GROUPS)) {
              // All of a group's loads before their first use, so that they cross NVLink together.
              const rows = g.registers('v16', u.GROUP, absent);
              const values = g.registers(
                'f32',
                u.GROUP,
                g.bits('f32', count === 0 ? 0 : u.NEGATIVE_ZERO_F32),
              );
              for (const r of g.unroll(u.GROUP)) {
                const row = group * u.GROUP + r;
                if (row < u.ROWS) {
                  if (row < count) {
                    if (u.PUSH && from[row] !== g.rank) {
                      const home = mine.returned
                        .as('v16')
                        .at((from[row]! * u.MAX_TOKENS + token) * u.UNITS + i);
                      rows[r] = g.load(home, { order: 'relaxed', scope: 'sys' });
                    } else {
                      const there = win.at(from[row]!).output;
                      // No 'stream' here: loads from a peer that do not allocate in L1 reach half the bandwidth.
                      if (u.VECTORS) rows[r] = g.load(there.as('v16').at(at));
                      else values[r] = g.f32(g.load(there.as(u.DTYPE).at(at)));
                    }
                  }
                }
              }
              if (u.PUSH) {
                for (const r of g.unroll(u.GROUP)) {
                  const row = group * u.GROUP + r;
                  if (row < u.ROWS) {
                    if (row < count && from[row] !== g.rank) {
                      const home = mine.returned
                        .as('v16')
                        .at((from[row]! * u.MAX_TOKENS + token) * u.UNITS + i);
                      if (g.lane(rows[r]!, 'u32', 3) === u.EMPTY) {
                        rows[r] = g.awaitFilled(home, u.EMPTY, { scope: 'sys', limit: patience });
                        if (g.lane(rows[r]!, 'u32', 3) === u.EMPTY) {
                          if (patience > 0) u.failed({ win, peer: from[row]!, epoch });
                          patience = g.u32(0);
                        }
                        // Others came meanwhile: another look at all of them at once. (A wait for each in turn took 0.1 µs
                        // longer at 128 tokens, 0.4 where dispatch carried fp8.)
                        for (const q of g.unroll(u.GROUP)) {
                          const later = group * u.GROUP + q;
                          if (q > r && later < u.ROWS) {
                            if (
                              later < count &&
                              from[later] !== g.rank &&
                              g.lane(rows[q]!, 'u32', 3) === u.EMPTY
                            ) {
                              const there = mine.returned
                                .as('v16')
                                .at((from[later]! * u.MAX_TOKENS + token) * u.UNITS + i);
                              rows[q] = g.load(there, { order: 'relaxed', scope: 'sys' });
                            }
                          }
                        }
                      }
                      const empty = g.pack('u32', [u.EMPTY, u.EMPTY, u.EMPTY, u.EMPTY]);
                      g.store(home, empty, { order: 'relaxed', scope: 'sys' });
                    }
                  }
                }
              }
              for (const lane of g.unroll(u.LANES)) {
                if (u.VECTORS) {
                  for (const r of g.unroll(u.GROUP)) values[r] = g.f32(g.lane(rows[r]!, u.DTYPE, lane));
                }
                for (const level of g.unroll(u.GROUP_LEVELS)) {
                  for (const r of g.unroll(u.GROUP)) {
                    if (r % (2 << level) === 0) values[r]! += values[r + (1 << level)]!;
                  }
                }
                sums[group * u.LANES + lane] = values[0]!;
              }
            }
            const total = g.registers('f32', u.LANES);
            for (const lane of g.unroll(u.LANES)) {
              for (const level of g.unroll(u.LEVELS)) {
                for (const group of g.unroll(u.GROUPS)) {
                  if (group % (2 << level) === 0) {
                    sums[group * u.LANES + lane]! += sums[(group + (1 << level)) * u.LANES + lane]!;
                  }
                }
              }
              total[lane] = sums[lane]!;
            }
            const to = token * u.UNITS + i;
            if (u.VECTORS) g.store(out.as('v16').at(to), g.pack(u.DTYPE, total), { cache: 'stream' });
            else g.store(out.at(to), g.convert(u.DTYPE, total[0]!));
          }
        }
      }
      // Zeroed behind the experts that read them and before the next dispatch adds to them (stream order).
      if (u.COUNTS) {
        if (g.blockIdx.x === 0) {
          for (let e = g.threadIdx.x; e < u.LOCAL_EXPERTS; e += g.blockDim.x) g.store(mine.counts.at(e), 0);
        }
      }
    },
  );
}
