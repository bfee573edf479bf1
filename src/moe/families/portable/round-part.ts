/** A part of a row of bf16 on its way to where puts read it, rounded; a warp. */
import { device, pointer } from '../../../lang/index.js';
import { partsOf } from '../common/parts.js';
import { roundVector } from '../common/quantise.js';
import type { Portable } from './kit.js';

/** Other lanes read it behind a barrier of the caller's. */
export function roundPart({ shape, at: { mine } }: Portable, payload: number) {
  const { rowUnits, partUnits } = partsOf(shape, payload, shape.dispatch.parts);
  return device(
    {
      params: { mine, from: pointer('v16'), token: 'u32', part: 'u32' },
      using: {
        ...{ P: payload, ROW_UNITS: rowUnits, PART_UNITS: partUnits },
        roundVector: roundVector(shape, payload),
      },
    },
    (g, { mine, from, token, part }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.ROW_UNITS));
      for (let base = part * u.PART_UNITS; base < end; base += 32) {
        const i = base + g.laneId;
        const { vector, scales } = u.roundVector({ row: from.at(2 * token * u.ROW_UNITS), i, end });
        if (i < end) {
          g.store(mine.roundedRows[u.P]!.at(token, i), vector);
          if (i % 8 === 0) g.store(mine.roundedRows[u.P + 1]!.at(token, i / 8), scales);
        }
      }
    },
  );
}
