/**
 * Combine with rows that travel as e4m3: combine.ts's push with 1.03 bytes an element instead of 2 or 4. The rank of
 * the experts rounds its partial rows (docs/semantics.md has the arithmetic), the source widens and adds them up.
 *
 * The work is cut for warps: 32 vectors of 16 elements of a row at a time, with the 4 scales that belong to them. As in
 * combine.ts nobody waits for a flag: elements and scales are EMPTY until they have come, and made so again by the only
 * thread that reads them.
 */

import { kernel, peers, pointer } from '../../lang/index.js';
import { dtypes } from '../../layer/index.js';
import { operations } from '../common/failure.js';
import { expertOwner, protocol } from './protocol.js';
import { emptyWord } from './push.js';
import { e4m3Row, pushE4m3 } from './push-e4m3.js';
import { sumTree } from './tree.js';
import { localExperts, type OneSidedShape, type OneSidedWindow } from './window.js';

export function combineE4m3Kernel(shape: OneSidedShape, window: OneSidedWindow) {
  const { countCombine, failed, patience, releaseSlots } = protocol(
    window,
    shape,
    'combined',
    operations.combine,
  );
  const { dtype } = shape.output;
  const rows = Math.min(shape.topK, shape.ranks);
  return kernel(
    {
      name: 'one_sided_combine_e4m3',
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
        ...e4m3Row(shape),
        // Sums of several groups take registers from the rows of the next.
        ...sumTree(rows, rows > 8 ? 4 : 8),
        RANKS: shape.ranks,
        K: shape.topK,
        MAX_TOKENS: shape.maxTokens,
        BLOCKS: shape.combine.blocks,
        PARTS: shape.combine.parts,
        COUNTS: shape.counts,
        LOCAL_EXPERTS: localExperts(shape),
        DTYPE: dtype,
        /** The vectors that hold 16 sums, and the sums in each. */
        SUM_VECTORS: dtypes[dtype].size,
        SUM_LANES: 16 / dtypes[dtype].size,
        /** Pieces that pushing runs ahead of adding up, so that a block never waits for what it could still send. */
        AHEAD: shape.combine.ahead,
        EMPTY: emptyWord,
        NEGATIVE_ZEROS: 0x80808080,
        /** The bits of 1. */
        ONE: 0x3f800000,
        ownerOf: expertOwner(shape),
        countCombine,
        failed,
        patience,
        pushE4m3: pushE4m3(shape, window),
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
      if (g.blockIdx.x === u.BLOCKS) {
        u.releaseSlots({ win, epoch });
        return;
      }

      const pieces = u.MAX_TOKENS * u.PARTS;
      const lag = u.AHEAD * u.BLOCKS;
      for (let step = g.blockIdx.x; step < pieces + lag; step += u.BLOCKS) {
        const piece = step - lag;
        const token = piece / u.PARTS;
        // Lane k holds route k of the token to add up, on its way while another is pushed.
        let id = g.i32(-1);
        if (step >= lag && token < tokens && g.laneId < u.K) id = g.load(topkIds.at(token * u.K + g.laneId));

        if (step < pieces) u.pushE4m3({ win, piece: step, epoch });

        if (step >= lag && token < tokens) {
          const part = piece % u.PARTS;

          // The owners of this token's routes, each once, in order of first appearance: the order of the sum.
          const owner = u.ownerOf({ expert: id });
          const same = g.warp.match(owner);
          const firsts = g.warp.ballot(owner < u.RANKS && g.ffs(same) - 1 === g.laneId);
          const count = g.popc(firsts);

          // -0 (times 1) stands for the rows that a token has not; no rows at all sum to +0.
          const nothing = g.u32(count === 0 ? 0 : u.NEGATIVE_ZEROS);
          const absent = g.pack('u32', [nothing, nothing, nothing, nothing]);

          const end = g.min((part + 1) * u.PART_STRETCHES, g.u32(u.STRETCHES));
          for (
            let stretch = part * u.PART_STRETCHES + g.warpId;
            stretch < end;
            stretch += g.blockDim.x / 32
          ) {
            const i = stretch * 32 + g.laneId;
            let left = firsts;
            // By level of the tree: sums of groups that wait for the next of their size.
            const sums = g.registers('f32', (u.LEVELS + 1) * 16);
            for (const group of g.unroll(u.GROUPS)) {
              // The ranks of this group's rows, in place of absent ones RANKS. Lane 4r + s will hold scale s of row r.
              const from = g.registers('u32', u.GROUP, u.RANKS);
              let source = g.u32(u.RANKS);
              for (const r of g.unroll(u.GROUP)) {
                const first = g.warp.shuffle(owner, g.max(g.ffs(left), g.u32(1)) - 1);
                if (left !== 0) {
                  from[r] = first;
                  if (g.laneId / 4 === r) source = first;
                }
                left &= left - 1;
              }

              // All of a group's loads before their first use.
              const rows = g.registers('v16', u.GROUP, absent);
              for (const r of g.unroll(u.GROUP)) {
                if (from[r]! < u.RANKS && i < u.UNITS) {
                  const home = (from[r]! * u.MAX_TOKENS + token) * u.ROW_VECTORS + i;
                  rows[r] = g.load(mine.returned.as('v16').at(home), { order: 'relaxed', scope: 'sys' });
                }
              }
              const block = stretch * 4 + (g.laneId % 4);
              let scale = g.u32(u.ONE);
              if (source < u.RANKS && block < u.SCALES) {
                const word = (source * u.MAX_TOKENS + token) * u.ROW_WORDS + u.FIRST_SCALE + block;
                const home = mine.returned.as('u32').at(word);
                scale = g.load(home, { order: 'relaxed', scope: 'sys' });
                if (scale === u.EMPTY) {
                  // EMPTY is negative and scales are not: they have all reached 0.
                  const came = g.awaitEpoch(home, 0, { order: 'relaxed', scope: 'sys', limit: patience });
                  scale = g.load(home, { order: 'relaxed', scope: 'sys' });
                  if (!came) {
                    if (patience > 0) u.failed({ win, peer: source, epoch });
                    patience = g.u32(0);
                  }
                }
                g.store(home, u.EMPTY, { order: 'relaxed', scope: 'sys' });
              }
              for (const r of g.unroll(u.GROUP)) {
                if (from[r]! < u.RANKS && i < u.UNITS) {
                  const home = mine.returned
                    .as('v16')
                    .at((from[r]! * u.MAX_TOKENS + token) * u.ROW_VECTORS + i);
                  if (g.lane(rows[r]!, 'u32', 3) === u.EMPTY) {
                    rows[r] = g.awaitFilled(home, u.EMPTY, { scope: 'sys', limit: patience });
                    if (g.lane(rows[r]!, 'u32', 3) === u.EMPTY) {
                      if (patience > 0) u.failed({ win, peer: from[r]!, epoch });
                      patience = g.u32(0);
                    }
                  }
                  const empty = g.pack('u32', [u.EMPTY, u.EMPTY, u.EMPTY, u.EMPTY]);
                  g.store(home, empty, { order: 'relaxed', scope: 'sys' });
                }
              }

              const scales = g.registers('f32', u.GROUP);
              for (const r of g.unroll(u.GROUP)) {
                scales[r] = g.bits('f32', g.warp.shuffle(scale, r * 4 + g.laneId / 8));
              }
              const values = g.registers('f32', u.GROUP);
              for (const lane of g.unroll(16)) {
                for (const r of g.unroll(u.GROUP)) {
                  values[r] = g.f32(g.lane(rows[r]!, 'e4m3', lane)) * scales[r]!;
                }
                for (const level of g.unroll(u.GROUP_LEVELS)) {
                  for (const r of g.unroll(u.GROUP)) {
                    if (r % (2 << level) === 0) values[r]! += values[r + (1 << level)]!;
                  }
                }
                for (const level of g.unroll(u.LEVELS + 1)) {
                  if ((group + 1) % (1 << level) === 0) {
                    if ((group + 1) % (2 << level) === 0) values[0] = sums[level * 16 + lane]! + values[0]!;
                    else sums[level * 16 + lane] = values[0]!;
                  }
                }
              }
            }
            if (i < u.UNITS) {
              const to = out.as('v16').at((token * u.UNITS + i) * u.SUM_VECTORS);
              for (const v of g.unroll(u.SUM_VECTORS)) {
                const total = g.registers('f32', u.SUM_LANES);
                for (const lane of g.unroll(u.SUM_LANES))
                  total[lane] = sums[u.LEVELS * 16 + v * u.SUM_LANES + lane]!;
                g.store(to.at(v), g.pack(u.DTYPE, total), { cache: 'stream' });
              }
            }
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
