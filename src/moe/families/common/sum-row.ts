/** One part of a token's row of sums, into the caller's tensor; a warp. The same for rows of every format that messages bring. */
import {
  type DeviceFunction,
  type DeviceParams,
  device,
  pointer,
  type RecordParam,
  registers,
} from '../../../lang/index.js';
import { dtypes, formatOf, type Layer, stretchesOf, sumsOf } from '../../layer/index.js';
import { partialDtype, rowsOf } from './received.js';

/** What a lane adds up at a time: one vector, or 16 values where rows are rounded; where rows are no whole vectors, one value. */
export function sumUnit(layer: Pick<Layer, 'output'>) {
  const partial = partialDtype(layer);
  const { vectors, lanes, units } = rowsOf(layer, partial);
  if (formatOf(layer.output).rounding === null) return { vectors, lanes, units, loads: 1, values: lanes };
  const loads = dtypes[partial].size;
  return { vectors, lanes, units: units / loads, loads, values: 16 };
}

/** What one of so many parts of a row has: units, or stretches where rows are rounded. */
export function unitsInPart(layer: Pick<Layer, 'output'>, parts: number): number {
  const asTheyLie = formatOf(layer.output).rounding === null;
  return Math.ceil((asTheyLie ? sumUnit(layer).units : stretchesOf(layer.output).STRETCHES) / parts);
}

/** Makes the sum of one unit. */
export const sumParams = <At extends DeviceParams>(at: RecordParam<At>, values: number) => ({
  at,
  /** Of the row. */
  unit: 'u32' as const,
  /** Where it lies in a row that has travelled, and its word of scales, if any. */
  i: 'u32' as const,
  word: 'u32' as const,
  values: registers('f32', values),
});
export type Sum<At extends DeviceParams> = DeviceFunction<ReturnType<typeof sumParams<At>>, 'void'>;

interface SumRow<At extends DeviceParams> {
  readonly at: RecordParam<At>;
  readonly sum: Sum<At>;
  /** What a part of a row has: units, or stretches where rows are rounded. */
  readonly part: number;
}

const params = <At extends DeviceParams>({ output }: Pick<Layer, 'output'>, at: RecordParam<At>) => ({
  at,
  out: pointer(output.dtype),
  token: 'u32' as const,
  part: 'u32' as const,
});

export const sumRow = <At extends DeviceParams>(layer: Pick<Layer, 'output'>, of: SumRow<At>) =>
  formatOf(layer.output).rounding === null ? unitByUnit(layer, of) : stretchByStretch(layer, of);

function unitByUnit<At extends DeviceParams>(layer: Pick<Layer, 'output'>, { at, sum, part }: SumRow<At>) {
  const { units, vectors, values } = sumUnit(layer);
  return device(
    {
      name: 'sum_row',
      params: params(layer, at),
      using: {
        UNITS: units,
        PART_UNITS: part,
        VECTORS: vectors,
        VALUES: values,
        DTYPE: layer.output.dtype,
        sum,
      },
    },
    (g, { at, out, token, part }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + g.laneId; i < end; i += 32) {
        const values = g.registers('f32', u.VALUES);
        u.sum({ at, unit: i, i, word: 0, values });
        const to = token * u.UNITS + i;
        if (u.VECTORS) g.store(out.as('v16').at(to), g.pack(u.DTYPE, values), { cache: 'stream' });
        else g.store(out.at(to), g.convert(u.DTYPE, values[0]!));
      }
    },
  );
}

function stretchByStretch<At extends DeviceParams>(
  { output }: Pick<Layer, 'output'>,
  { at, sum, part }: SumRow<At>,
) {
  const { UNITS, STRETCHES, STRETCH } = stretchesOf(output);
  return device(
    {
      name: 'sum_row',
      params: params({ output }, at),
      using: {
        ...{ UNITS, STRETCHES, STRETCH },
        PART_STRETCHES: part,
        /** The vectors that hold 16 sums. */
        VECTORS: dtypes[output.dtype].size,
        sum,
        sumsOf: sumsOf(output.dtype),
      },
    },
    (g, { at, out, token, part }, u) => {
      const end = g.min((part + 1) * u.PART_STRETCHES, g.u32(u.STRETCHES));
      for (let stretch = part * u.PART_STRETCHES; stretch < end; stretch += 1) {
        const unit = stretch * 32 + g.laneId;
        if (unit < u.UNITS) {
          const values = g.registers('f32', 16);
          const start = stretch * u.STRETCH;
          const word = (start + g.min(u.UNITS - stretch * 32, g.u32(32))) * 4 + g.laneId / 8;
          u.sum({ at, unit, i: start + g.laneId, word, values });
          const to = out.as('v16').at((token * u.UNITS + unit) * u.VECTORS);
          for (const v of g.unroll(u.VECTORS))
            g.store(to.at(v), u.sumsOf({ values, v }), { cache: 'stream' });
        }
      }
    },
  );
}
