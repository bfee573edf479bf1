/** Rows that travel back as they are. */
import { device, pointer } from '../../lang/index.js';
import { outputRowBytes, type RowDtype } from '../../layer/index.js';
import { emptyWord } from './arrival.js';
import { team } from './team.js';
import { depth, type OneSidedShape } from './window.js';

/** One part of a row: from `output` of this rank to `returned` of its source. */
export const pushParams = { from: pointer('v16'), to: pointer('v16'), part: 'u32' } as const;

/** What an expert's own all-ones NaN becomes on its way: NaN in every lane too, but not EMPTY. */
const otherNan: Readonly<Record<RowDtype, number>> = { bf16: 0x7fff7fff, f16: 0x7fff7fff, f32: 0x7fffffff };

/** arrival.ts says why each vector is one relaxed store. */
export function pushRow(shape: OneSidedShape) {
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
        team: team(shape.combine),
      },
    },
    (g, { from, to, part }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let base = part * u.PART_UNITS; base < end; base += u.team.threads() * u.DEPTH) {
        const row = g.registers('v16', u.DEPTH);
        for (const d of g.unroll(u.DEPTH)) {
          const i = base + d * u.team.threads() + u.team.thread();
          if (i < end) row[d] = g.load(from.at(i), { cache: 'stream' });
        }
        for (const d of g.unroll(u.DEPTH)) {
          const i = base + d * u.team.threads() + u.team.thread();
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
