/** What this rank's experts made of one token for each of its sources, on its way home. */
import { device, peers, pointer } from '../../lang/index.js';
import { outputRowBytes, type RowDtype } from '../../layer/index.js';
import { emptyWord } from './arrival.js';
import { pushE4m3 } from './e4m3.js';
import { depth, type OneSidedShape, type OneSidedWindow } from './window.js';

/** One part of a row: from `output` of this rank to `returned` of its source. */
export const pushParams = { from: pointer('v16'), to: pointer('v16'), part: 'u32' } as const;

/** Pushes one piece (a part of a token's row) to all ranks that sent the token here. */
export function pushPiece(shape: OneSidedShape, window: OneSidedWindow) {
  const e4m3 = shape.output.wire === 'e4m3';
  return device(
    {
      name: 'push_piece',
      params: { win: peers(window), piece: 'u32', epoch: 'u32' },
      using: {
        RANKS: shape.ranks,
        PARTS: shape.combine.parts,
        // As e4m3 what stays at home is rounded like the rest, so it travels too.
        OTHERS: e4m3 ? shape.ranks : shape.ranks - 1,
        pushRow: e4m3 ? pushE4m3(shape) : pushRow(shape),
      },
    },
    (g, { win, piece, epoch }, u) => {
      const mine = win.at(g.rank);
      const token = piece / u.PARTS;
      // Ranks start with different peers, so that no window is everybody's first. One source after the other: several at
      // a time were slower (docs/results).
      for (let other = 1; other <= u.OTHERS; other += 1) {
        const source = (g.rank + other) % u.RANKS;
        if (g.load(mine.present.at(epoch % 2, source, token)) !== 0) {
          const from = mine.output.at(source, token).as('v16');
          u.pushRow({ from, to: win.at(source).returned.at(g.rank, token), part: piece % u.PARTS });
        }
      }
    },
  );
}

/** What an expert's own all-ones NaN becomes on its way: NaN in every lane too, but not EMPTY. */
const otherNan: Readonly<Record<RowDtype, number>> = { bf16: 0x7fff7fff, f16: 0x7fff7fff, f32: 0x7fffffff };

/** Rows as they are. arrival.ts says why each vector is one relaxed store. */
function pushRow(shape: OneSidedShape) {
  const units = outputRowBytes(shape) / 16;
  const partUnits = Math.ceil(units / shape.combine.parts);
  return device(
    {
      name: 'push_row',
      params: pushParams,
      using: {
        UNITS: units,
        PART_UNITS: partUnits,
        DEPTH: depth(partUnits, shape.combine),
        EMPTY: emptyWord,
        OTHER_NAN: otherNan[shape.output.dtype],
      },
    },
    (g, { from, to, part }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
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
    },
  );
}
