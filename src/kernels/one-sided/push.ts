import { device, peers } from '../../lang/index.js';
import { outputRowBytes, type RowDtype } from '../../layer/index.js';
import { depth, type OneSidedShape, type OneSidedWindow } from './window.js';

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
        DEPTH: depth(partUnits, shape.combine),
        EMPTY: emptyWord,
        OTHER_NAN: otherNan[shape.output.dtype],
      },
    },
    (g, { win, piece, epoch }, u) => {
      const mine = win.at(g.rank);
      const token = piece / u.PARTS;
      const part = piece % u.PARTS;
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));

      // Ranks start with different peers, so that no window is everybody's first. One source after the other: loading
      // and pushing three at a time took 0.7 to 1.1 µs longer at 8 and 32 tokens and gained nothing at 2048; the cause
      // is not established (docs/results).
      for (let other = 1; other < u.RANKS; other += 1) {
        const source = (g.rank + other) % u.RANKS;
        const slot = source * u.MAX_TOKENS + token;
        if (g.load(mine.present.at((epoch % 2) * u.SLOTS + slot)) !== 0) {
          const from = mine.output.as('v16').at(slot * u.UNITS);
          const home = win.at(source).returned.as('v16');
          const to = home.at((g.rank * u.MAX_TOKENS + token) * u.UNITS);
          for (let base = part * u.PART_UNITS; base < end; base += g.blockDim.x * u.DEPTH) {
            const row = g.registers('v16', u.DEPTH);
            for (const d of g.unroll(u.DEPTH)) {
              const i = base + d * g.blockDim.x + g.threadIdx.x;
              if (i < end) row[d] = g.load(from.at(i), { cache: 'stream' });
            }
            for (const d of g.unroll(u.DEPTH)) {
              const i = base + d * g.blockDim.x + g.threadIdx.x;
              const last = g.lane(row[d]!, 'u32', 3);
              const filled = g.pack('u32', [
                g.lane(row[d]!, 'u32', 0),
                g.lane(row[d]!, 'u32', 1),
                g.lane(row[d]!, 'u32', 2),
                last === u.EMPTY ? u.OTHER_NAN : last,
              ]);
              if (i < end) g.store(to.at(i), filled, { order: 'relaxed', scope: 'sys' });
            }
          }
        }
      }
    },
  );
}
