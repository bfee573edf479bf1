/**
 * Combine, pulling: every rank reads the partial rows of its tokens from where the experts of other ranks left
 * them, adds them up in f32 and writes each token's row once.
 *
 * One launch, one rendezvous, at the head: it says that the experts of every rank are done. Nothing is waited for
 * at the tail; window.ts says why `output` may be overwritten afterwards.
 */
import { kernel, peers, pointer } from '../../lang/index.js';
import { expertOwner, protocol } from './protocol.js';
import {
  dtypeBytes,
  localExperts,
  type OneSidedShape,
  type OneSidedWindow,
  operations,
  outputRowBytes,
} from './window.js';

const powerOfTwo = (n: number): number => 2 ** Math.ceil(Math.log2(n));

export function combineKernel(shape: OneSidedShape, window: OneSidedWindow) {
  const { arrive, awaitPeers } = protocol(window, shape, 'combined', operations.combine);
  const { dtype } = shape.output;
  // Rows of whole 16-byte vectors move as such; others element by element.
  const vectors = outputRowBytes(shape) % 16 === 0;
  const lanes = vectors ? 16 / dtypeBytes[dtype] : 1;
  const units = shape.output.hidden / lanes;
  // A token has at most `rows` partial rows; they are added in groups of up to 8, both counts rounded up to powers of 2.
  const rows = Math.min(shape.topK, shape.ranks);
  const group = Math.min(8, powerOfTwo(rows));
  const groups = powerOfTwo(Math.ceil(rows / group));
  return kernel(
    {
      name: 'one_sided_combine',
      maxThreads: shape.threads,
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
        PARTS: shape.parts,
        COUNTS: shape.counts,
        LOCAL_EXPERTS: localExperts(shape),
        DTYPE: dtype,
        VECTORS: vectors,
        LANES: lanes,
        UNITS: units,
        PART_UNITS: Math.ceil(units / shape.parts),
        ROWS: rows,
        GROUP: group,
        GROUP_LEVELS: Math.log2(group),
        GROUPS: groups,
        LEVELS: Math.log2(groups),
        BLOCKS: shape.blocks,
        ownerOf: expertOwner(shape),
        arrive,
        awaitPeers,
      },
    },
    (g, { win, topkIds, out, tokens, limit }, u) => {
      const mine = win.at(g.rank);
      const epochs = mine.epochs.at(u.BLOCKS);
      const epoch = g.load(epochs.at(g.blockIdx.x)) + 1;

      // This rank's experts wrote `output` before this launch began (stream order), so each block may vouch for it.
      u.arrive({ win, epoch });
      u.awaitPeers({ win, epoch, limit });

      for (let piece = g.blockIdx.x; piece < tokens * u.PARTS; piece += g.gridDim.x) {
        const token = piece / u.PARTS;
        const part = piece % u.PARTS;
        const slot = g.rank * u.MAX_TOKENS + token;

        // The owners of this token's routes, each once, in order of first appearance: the order of the sum.
        let owner = g.u32(u.RANKS);
        if (g.laneId < u.K) owner = u.ownerOf({ expert: g.load(topkIds.at(token * u.K + g.laneId)) });
        const same = g.warp.match(owner);
        let left = g.warp.ballot(owner < u.RANKS && g.ffs(same) - 1 === g.laneId);
        const count = g.popc(left);
        const from = g.registers('u32', u.ROWS);
        for (const r of g.unroll(u.ROWS)) {
          from[r] = g.warp.shuffle(owner, g.max(g.ffs(left), g.u32(1)) - 1);
          left &= left - 1;
        }

        const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
        for (let i = part * u.PART_UNITS + g.threadIdx.x; i < end; i += g.blockDim.x) {
          const at = slot * u.UNITS + i;
          // A pairwise tree over the rows, in groups that fit in registers. Rows past `count` are +0.
          const sums = g.registers('f32', u.GROUPS * u.LANES);
          for (const group of g.unroll(u.GROUPS)) {
            // All of a group's loads before their first use, so that they cross NVLink together.
            const rows = g.registers('v16', u.GROUP);
            const values = g.registers('f32', u.GROUP);
            for (const r of g.unroll(u.GROUP)) {
              const row = group * u.GROUP + r;
              if (row < u.ROWS) {
                if (row < count) {
                  const there = win.at(from[row]!).output;
                  if (u.VECTORS) rows[r] = g.load(there.as('v16').at(at), { cache: 'stream' });
                  else values[r] = g.f32(g.load(there.as(u.DTYPE).at(at)));
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
      // Zeroed behind the experts that read them and before the next dispatch adds to them (stream order).
      if (u.COUNTS) {
        if (g.blockIdx.x === 0) {
          for (let e = g.threadIdx.x; e < u.LOCAL_EXPERTS; e += g.blockDim.x) g.store(mine.counts.at(e), 0);
        }
      }
      if (g.threadIdx.x === 0) g.store(epochs.at(g.blockIdx.x), epoch);
    },
  );
}
