/** Rows of a token on their way into the message that takes them home. */
import { device, pointer, registers } from '../../../lang/index.js';
import { formatOf, type Rounding, storeStretch, stretchesOf } from '../../layer/index.js';
import { numbers } from '../common/params.js';
import { sumUnit, unitsInPart } from '../common/sum.js';
import type { Hybrid } from './kit.js';
import { nodeSum } from './node-sum.js';

/** One part of a token's sum over this node, into the message that takes it home; a warp. */
export function sumHome(h: Hybrid) {
  const { rounding } = formatOf(h.shape.output);
  return rounding === null ? sumRows(h) : sumRounded(h, rounding);
}

/** Parameters of a function that puts a part of a token’s rows into a message. `to`: where its rows begin there. */
const homeParams = ({ at: { win } }: Hybrid) => ({
  ...{ win, to: pointer('v16'), ...numbers('source', 'token', 'part') },
  ...{ owners: registers('u32'), ...numbers('count') },
});

function sumRows(h: Hybrid) {
  const { output, combine } = h.shape;
  const unit = sumUnit(h.shape);
  return device(
    {
      params: homeParams(h),
      using: {
        ...{ UNITS: unit.units, PART_UNITS: unitsInPart(h.shape, combine.parts) },
        ...{ VECTORS: unit.vectors, VALUES: unit.values, DTYPE: output.dtype, nodeSum: nodeSum(h) },
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
function sumRounded(h: Hybrid, rounding: Rounding) {
  const { output, combine } = h.shape;
  const { UNITS, STRETCHES } = stretchesOf(output);
  return device(
    {
      params: homeParams(h),
      using: {
        ...{ UNITS, STRETCHES, PART_STRETCHES: unitsInPart(h.shape, combine.parts) },
        ...{ nodeSum: nodeSum(h), storeStretch: storeStretch(output, rounding) },
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
