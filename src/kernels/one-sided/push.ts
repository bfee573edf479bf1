import { device, peers } from '../../lang/index.js';
import { depth, type OneSidedShape, type OneSidedWindow, outputRowBytes, type RowDtype } from './window.js';

/**
 * The last word of every 16 bytes of `returned` until a row's bytes replace it: all ones, NaN in every lane whatever
 * the row's type, and a NaN that no sum of numbers has.
 */
export const emptyWord = 0xffffffff;
/** What an expert's own all-ones NaN becomes on its way: NaN in every lane too, but not EMPTY. */
const otherNan: Readonly<Record<RowDtype, number>> = { bf16: 0x7fff7fff, f16: 0x7fff7fff, f32: 0x7fffffff };

/**
 * Pushes one piece (a part of a token's row) of what this rank's experts made for all other ranks, into the
 * `returned` sections of those that sent the token here. Every 16 bytes are one relaxed store: whoever sees their last
 * word sees them all, and nothing else has to be ordered with them.
 */
export function pushPiece(shape: OneSidedShape, window: OneSidedWindow) {
  const units = outputRowBytes(shape) / 16;
  const partUnits = Math.ceil(units / shape.combine.parts);
  const loads = depth(partUnits, shape.combine.threads);
  return device(
    {
      name: 'push_piece',
      params: { win: peers(window), piece: 'u32', epoch: 'u32' },
      using: {
        RANKS: shape.ranks,
        MAX_TOKENS: shape.maxTokens,
        SLOTS: shape.ranks * shape.maxTokens,
        PARTS: shape.combine.parts,
        UNITS: units,
        PART_UNITS: partUnits,
        DEPTH: loads,
        /** Sources served together, so that each thread keeps about four loads in flight. */
        GANG: Math.max(1, Math.min(shape.ranks - 1, Math.floor(4 / loads))),
        EMPTY: emptyWord,
        OTHER_NAN: otherNan[shape.output.dtype],
      },
    },
    (g, { win, piece, epoch }, u) => {
      const mine = win.at(g.rank);
      const token = piece / u.PARTS;
      const part = piece % u.PARTS;
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));

      // Lane l looks after the source l + 1 places on: ranks start with different peers, so that no window is
      // everybody's first.
      for (let first = 1; first < u.RANKS; first += 32) {
        let here = g.u32(0);
        if (first + g.laneId < u.RANKS) {
          const at = ((g.rank + first + g.laneId) % u.RANKS) * u.MAX_TOKENS + token;
          // Both halves at once: the epoch that chooses is still on its way. A source that is a round ahead may be
          // writing the other half, so the accesses are atomic; the rendezvous of dispatch has ordered this one.
          const even = g.load(mine.present.at(at), { order: 'relaxed', scope: 'sys' });
          const odd = g.load(mine.present.at(u.SLOTS + at), { order: 'relaxed', scope: 'sys' });
          here = epoch % 2 === 0 ? even : odd;
        }
        let left = g.warp.ballot(here !== 0);
        while (left !== 0) {
          const sources = g.registers('u32', u.GANG, u.RANKS);
          for (const s of g.unroll(u.GANG)) {
            if (left !== 0) sources[s] = (g.rank + first + g.ffs(left) - 1) % u.RANKS;
            left &= left - 1;
          }
          for (let base = part * u.PART_UNITS; base < end; base += g.blockDim.x * u.DEPTH) {
            const rows = g.registers('v16', u.GANG * u.DEPTH);
            for (const s of g.unroll(u.GANG)) {
              for (const d of g.unroll(u.DEPTH)) {
                const i = base + d * g.blockDim.x + g.threadIdx.x;
                if (sources[s]! < u.RANKS && i < end) {
                  const from = mine.output.as('v16').at((sources[s]! * u.MAX_TOKENS + token) * u.UNITS);
                  rows[s * u.DEPTH + d] = g.load(from.at(i), { cache: 'stream' });
                }
              }
            }
            for (const s of g.unroll(u.GANG)) {
              for (const d of g.unroll(u.DEPTH)) {
                const i = base + d * g.blockDim.x + g.threadIdx.x;
                if (sources[s]! < u.RANKS && i < end) {
                  const row = rows[s * u.DEPTH + d]!;
                  const last = g.lane(row, 'u32', 3);
                  const filled = g.pack('u32', [
                    g.lane(row, 'u32', 0),
                    g.lane(row, 'u32', 1),
                    g.lane(row, 'u32', 2),
                    last === u.EMPTY ? u.OTHER_NAN : last,
                  ]);
                  const home = win.at(sources[s]!).returned.as('v16');
                  const to = home.at((g.rank * u.MAX_TOKENS + token) * u.UNITS);
                  g.store(to.at(i), filled, { order: 'relaxed', scope: 'sys' });
                }
              }
            }
          }
        }
      }
    },
  );
}
