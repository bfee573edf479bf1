/** One part of a token's rows on this node, each owner's by itself, into the message that takes them home; a warp. */
import { device } from '../../../lang/index.js';
import { sumUnit } from '../common/sum-row.js';
import { combineMessage } from './messages.js';
import type { HybridShape } from './shape.js';
import { homeParams } from './sum-home.js';
import type { HybridWindow } from './window.js';

export function copyHome(shape: HybridShape, window: HybridWindow) {
  const { units, vectors } = sumUnit(shape);
  return device(
    {
      name: 'copy_home',
      params: homeParams(window),
      using: {
        ROW: combineMessage(shape).row,
        UNITS: units,
        PART_UNITS: Math.ceil(units / shape.combine.parts),
        UNIT: vectors ? ('v16' as const) : shape.output.dtype,
      },
    },
    (g, { win, to, source, token, part, owners, count }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + g.laneId; i < end; i += 32) {
        for (const r of g.unroll(owners.length)) {
          if (r < count) {
            const row = win.at(owners[r]!).output.at(source, token, i);
            g.store(
              to
                .at(r * u.ROW)
                .as(u.UNIT)
                .at(i),
              g.load(row.as(u.UNIT)),
            );
          }
        }
      }
    },
  );
}
