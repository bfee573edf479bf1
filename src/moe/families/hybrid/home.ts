/** Rows of a token on their way into the message that takes them home. */
import { device, peers, pointer, registers } from '../../../lang/index.js';
import { formatOf, type Rounding, storeStretch, stretchesOf } from '../../layer/index.js';
import { sumUnit, unitsInPart } from '../common/sum.js';
import { combineMessage } from './messages.js';
import { nodeSum } from './node-sum.js';
import type { HybridShape } from './shape.js';
import type { HybridWindow } from './window.js';

/** One part of a token's sum over this node, into the message that takes it home; a warp. */
export function sumHome(shape: HybridShape, window: HybridWindow) {
  const { rounding } = formatOf(shape.output);
  return rounding === null ? sumRows(shape, window) : sumRounded(shape, window, rounding);
}

/** Callback that puts a part of a token's rows into a message. `to`: where its rows begin there. */
export const homeParams = (window: HybridWindow) =>
  ({
    win: peers(window),
    to: pointer('v16'),
    source: 'u32',
    token: 'u32',
    part: 'u32',
    owners: registers('u32'),
    count: 'u32',
  }) as const;

function sumRows(shape: HybridShape, window: HybridWindow) {
  const { units, vectors, values } = sumUnit(shape);
  return device(
    {
      params: homeParams(window),
      using: {
        UNITS: units,
        PART_UNITS: unitsInPart(shape, shape.combine.parts),
        VECTORS: vectors,
        VALUES: values,
        DTYPE: shape.output.dtype,
        nodeSum: nodeSum(shape, window),
      },
    },
    (g, { win, to, source, token, part, owners, count }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + g.laneId; i < end; i += 32) {
        const values = g.registers('f32', u.VALUES);
        u.nodeSum({ at: { win, source, token, owners }, count, unit: i, values });
        if (u.VECTORS) g.store(to.at(i), g.pack(u.DTYPE, values));
        else g.store(to.as(u.DTYPE).at(i), g.convert(u.DTYPE, values[0]!));
      }
    },
  );
}

/** Rounded, stretch by stretch. */
function sumRounded(shape: HybridShape, window: HybridWindow, rounding: Rounding) {
  const { UNITS, STRETCHES } = stretchesOf(shape.output);
  return device(
    {
      params: homeParams(window),
      using: {
        UNITS,
        STRETCHES,
        PART_STRETCHES: unitsInPart(shape, shape.combine.parts),
        nodeSum: nodeSum(shape, window),
        storeStretch: storeStretch(shape.output, rounding),
      },
    },
    (g, { win, to, source, token, part, owners, count }, u) => {
      const end = g.min((part + 1) * u.PART_STRETCHES, g.u32(u.STRETCHES));
      for (let stretch = part * u.PART_STRETCHES; stretch < end; stretch += 1) {
        const i = stretch * 32 + g.laneId;
        const values = g.registers('f32', 16);
        if (i < u.UNITS) u.nodeSum({ at: { win, source, token, owners }, count, unit: i, values });
        u.storeStretch({ to, stretch, values });
      }
    },
  );
}

/** One part of a token's rows on this node, each owner's by itself, into the message that takes them home; a warp. */
export function copyHome(shape: HybridShape, window: HybridWindow) {
  const { units, vectors } = sumUnit(shape);
  return device(
    {
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
