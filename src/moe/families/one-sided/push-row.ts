/** Rows that travel back as they are. */
import { device, pointer } from '../../../lang/index.js';
import { outputRowBytes } from '../../layer/index.js';
import { filled } from './arrival.js';
import { team } from './team.js';
import { depth, type OneSidedShape } from './window.js';

/** One part of a row: from `output` of this rank to `returned` of its source. */
export const pushParams = { from: pointer('v16'), to: pointer('v16'), part: 'u32' } as const;

/** arrival.ts says why each vector is one relaxed store. */
export function pushRow(shape: OneSidedShape) {
  const units = outputRowBytes(shape) / 16;
  const partUnits = Math.ceil(units / shape.combine.parts);
  return device(
    {
      params: pushParams,
      using: {
        UNITS: units,
        PART_UNITS: partUnits,
        DEPTH: depth(partUnits, shape.combine),
        filled: filled(shape.output.dtype),
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
          const vector = u.filled({ vector: row[d]! });
          if (i < end) g.store(to.at(i), vector, { order: 'relaxed', scope: 'sys' });
        }
      }
    },
  );
}
