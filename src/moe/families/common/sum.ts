/**
 * The sum of partial rows, as docs/semantics.md has it: a pairwise tree in f32. One function for every kernel that adds
 * up rows; where they come from, and how one waits for them, is handed in.
 */
import {
  constant,
  type DeviceFunction,
  type DeviceParams,
  device,
  pointer,
  type RecordParam,
  registers,
} from '../../../lang/index.js';
import { dtypes, formatOf, type Layer, stretchesOf, sumsOf } from '../../layer/index.js';
import { partialDtype, rowsOf } from './received.js';

/** Adds up at most 32 values: neighbours, then neighbours among those sums, and so on. Destroys them. */
export const treeSum = device({ params: { values: registers('f32') }, returns: 'f32' }, (g, { values }) => {
  for (const level of g.unroll(5)) {
    for (const r of g.unroll(values.length)) {
      if (r % (2 << level) === 0 && r + (1 << level) < values.length) values[r]! += values[r + (1 << level)]!;
    }
  }
  return values[0]!;
});

/** The sum of the values of the lanes up to this one, its own included; a warp. */
export const sumUpTo = device({ params: { value: 'u32' }, returns: 'u32' }, (g, { value }) => {
  let sum = value;
  for (const step of g.unroll(5)) {
    const below = g.warp.shuffleUp(sum, 1 << step);
    if (g.laneId >= 1 << step) sum += below;
  }
  return sum;
});

/** The place that `rowSum` is told, whatever that is, and what it asks for. */
export type Gather<At extends DeviceParams> = DeviceFunction<ReturnType<typeof gatherParams<At>>, 'void'>;

/**
 * The parameters of a function that brings some of a sum's rows: row `first` to rows[0], the next to rows[1] … A row
 * that there is not it leaves as it is. `scales`: by what each row is multiplied; 1 to begin with.
 */
export const gatherParams = <At extends DeviceParams>(at: RecordParam<At>) => ({
  at,
  /** How many rows the sum has. */
  count: 'u32' as const,
  /** Where the unit lies in a row that has travelled, and its word of scales, if any. */
  i: 'u32' as const,
  word: 'u32' as const,
  first: constant(),
  rows: registers('v16'),
  scales: registers('f32'),
});

/** −0 in every lane: it changes nothing that it is added to. */
export const negativeZeros = {
  bf16: 0x80008000,
  f16: 0x80008000,
  f32: 0x80000000,
  e4m3: 0x80808080,
} as const;

/** The type as which the lanes of a vector are read. A row that does not divide into vectors is read value by value, in the first lane. */
export function laneOf({ output }: Pick<Layer, 'output'>): keyof typeof negativeZeros {
  if (formatOf(output).rounding !== null) return 'e4m3';
  return rowsOf({ output }, output.dtype).vectors ? output.dtype : 'f32';
}

const noScale = device({ params: { word: 'u32' }, returns: 'f32' }, (g) => g.f32(1));

/** A lane's scale, from the word that came with the row. */
export const scaleOf = ({ output }: Pick<Layer, 'output'>) => formatOf(output).rounding?.scaleOf ?? noScale;

/** Rows held at once, of so many. Sums of several groups take registers from the rows of the next. */
export const mostHeld = (rows: number): number => (rows > 8 ? 4 : 8);

/** How rows are held and read that lie as they travelled: so many at most, so many values of a lane at a time. */
export const travelled = (layer: Pick<Layer, 'output'>, rows: number, lanes: number) =>
  ({ rows, most: mostHeld(rows), lane: laneOf(layer), lanes }) as const;

const powerOfTwo = (n: number): number => 2 ** Math.ceil(Math.log2(n));

/** Makes a sum of up to `rows` vectors of `lanes` values each, a group that fits in registers at a time. */
export function rowSum<At extends DeviceParams>(of: {
  /** The most rows that a sum has. */
  readonly rows: number;
  /** The most that are held at once. */
  readonly most?: number;
  readonly lane: keyof typeof negativeZeros;
  readonly lanes: number;
  /** Rows are multiplied by their scales first. */
  readonly scaled?: boolean;
  readonly at: RecordParam<At>;
  readonly gather: Gather<At>;
}) {
  const held = Math.min(of.most ?? 8, powerOfTwo(of.rows));
  const groups = powerOfTwo(Math.ceil(of.rows / held));
  return device(
    {
      params: sumParams(of.at, of.lanes),
      using: {
        ...{ GROUP: held, GROUPS: groups, LEVELS: Math.log2(groups), LANE: of.lane, LANES: of.lanes },
        ...{ SCALED: of.scaled ?? false, NEGATIVE_ZEROS: negativeZeros[of.lane], gather: of.gather, treeSum },
      },
    },
    (g, { at, count, i, word, values }, u) => {
      // −0 changes nothing that it is added to, so it stands for the rows that a token has not; no rows at all sum to +0.
      const nothing = g.u32(count === 0 ? 0 : u.NEGATIVE_ZEROS);
      const absent = g.pack('u32', [nothing, nothing, nothing, nothing]);
      // The sum of 2^n groups waits at level n for its neighbour.
      const levels = g.registers('f32', (u.LEVELS + 1) * u.LANES);
      for (const group of g.unroll(u.GROUPS)) {
        const rows = g.registers('v16', u.GROUP, absent);
        const scales = g.registers('f32', u.GROUP, 1);
        u.gather({ at, count, i, word, first: group * u.GROUP, rows, scales });
        for (const lane of g.unroll(u.LANES)) {
          const parts = g.registers('f32', u.GROUP);
          for (const r of g.unroll(u.GROUP)) {
            parts[r] = g.f32(g.lane(rows[r]!, u.LANE, lane));
            if (u.SCALED) parts[r]! *= scales[r]!;
          }
          let sum = u.treeSum({ values: parts });
          for (const level of g.unroll(u.LEVELS + 1)) {
            if ((group + 1) % (1 << level) === 0) {
              if ((group + 1) % (2 << level) === 0) sum = levels[level * u.LANES + lane]! + sum;
              else levels[level * u.LANES + lane] = sum;
            }
          }
        }
      }
      for (const lane of g.unroll(u.LANES)) values[lane] = levels[u.LEVELS * u.LANES + lane]!;
    },
  );
}

/** The values that a lane adds up at a time: one vector, or 16 values where rows are rounded; where rows are no whole vectors, one value. */
export function sumUnit(layer: Pick<Layer, 'output'>) {
  const partial = partialDtype(layer);
  const { vectors, lanes, units } = rowsOf(layer, partial);
  if (formatOf(layer.output).rounding === null) return { vectors, lanes, units, loads: 1, values: lanes };
  const loads = dtypes[partial].size;
  return { vectors, lanes, units: units / loads, loads, values: 16 };
}

/** The length of one part of a row that is cut into `parts`: in units, or in stretches if rows are rounded. */
export function unitsInPart(layer: Pick<Layer, 'output'>, parts: number): number {
  const asTheyLie = formatOf(layer.output).rounding === null;
  return Math.ceil((asTheyLie ? sumUnit(layer).units : stretchesOf(layer.output).STRETCHES) / parts);
}

/** Makes the sum of one unit, of so many rows. */
export const sumParams = <At extends DeviceParams>(at: RecordParam<At>, values: number) => ({
  at,
  count: 'u32' as const,
  /** The unit's place in the row. */
  unit: 'u32' as const,
  /** As `gatherParams` has them. */
  i: 'u32' as const,
  word: 'u32' as const,
  values: registers('f32', values),
});
export type Sum<At extends DeviceParams> = DeviceFunction<ReturnType<typeof sumParams<At>>, 'void'>;

/** Stores a vector of a token's sum in the caller's tensor; or adds it to what lies there. */
export const storeSum = ({ output: { dtype, adds = false } }: Pick<Layer, 'output'>) =>
  device(
    {
      params: { to: pointer('v16'), vector: 'v16' },
      using: { ADDS: adds, DTYPE: dtype, LANES: 16 / dtypes[dtype].size },
    },
    (g, { to, vector }, u) => {
      let sum = vector;
      if (u.ADDS) {
        const before = g.load(to, { cache: 'stream' });
        const sums = g.registers('f32', u.LANES);
        for (const lane of g.unroll(u.LANES))
          sums[lane] = g.f32(g.lane(before, u.DTYPE, lane)) + g.f32(g.lane(vector, u.DTYPE, lane));
        sum = g.pack(u.DTYPE, sums);
      }
      g.store(to, sum, { cache: 'stream' });
    },
  );

interface SumRow<At extends DeviceParams> {
  readonly at: RecordParam<At>;
  readonly sum: Sum<At>;
  /** The content of a part of a row: units, or stretches where rows are rounded. */
  readonly part: number;
}

const params = <At extends DeviceParams>({ output }: Pick<Layer, 'output'>, at: RecordParam<At>) => ({
  at,
  count: 'u32' as const,
  out: pointer(output.dtype),
  token: 'u32' as const,
  part: 'u32' as const,
});

/** One part of a token's row of sums, into the caller's tensor; a warp. The same for rows of every format that messages bring. */
export const sumRow = <At extends DeviceParams>(layer: Pick<Layer, 'output'>, of: SumRow<At>) =>
  formatOf(layer.output).rounding === null ? unitByUnit(layer, of) : stretchByStretch(layer, of);

function unitByUnit<At extends DeviceParams>(layer: Pick<Layer, 'output'>, { at, sum, part }: SumRow<At>) {
  const unit = sumUnit(layer);
  return device(
    {
      params: params(layer, at),
      using: {
        ...{ UNITS: unit.units, PART_UNITS: part, VECTORS: unit.vectors, VALUES: unit.values },
        ...{ DTYPE: layer.output.dtype, storeSum: storeSum(layer), sum },
      },
    },
    (g, { at, count, out, token, part }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + g.laneId; i < end; i += 32) {
        const values = g.registers('f32', u.VALUES);
        u.sum({ at, count, unit: i, i, word: 0, values });
        const to = token * u.UNITS + i;
        if (u.VECTORS) u.storeSum({ to: out.as('v16').at(to), vector: g.pack(u.DTYPE, values) });
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
      params: params({ output }, at),
      using: {
        ...{ UNITS, STRETCHES, STRETCH, PART_STRETCHES: part },
        /** The vectors that hold 16 sums. */
        VECTORS: dtypes[output.dtype].size,
        ...{ sum, sumsOf: sumsOf(output.dtype), storeSum: storeSum({ output }) },
      },
    },
    (g, { at, count, out, token, part }, u) => {
      const end = g.min((part + 1) * u.PART_STRETCHES, g.u32(u.STRETCHES));
      for (let stretch = part * u.PART_STRETCHES; stretch < end; stretch += 1) {
        const unit = stretch * 32 + g.laneId;
        if (unit < u.UNITS) {
          const values = g.registers('f32', 16);
          const start = stretch * u.STRETCH;
          const word = (start + g.min(u.UNITS - stretch * 32, g.u32(32))) * 4 + g.laneId / 8;
          u.sum({ at, count, unit, i: start + g.laneId, word, values });
          const to = out.as('v16').at((token * u.UNITS + unit) * u.VECTORS);
          for (const v of g.unroll(u.VECTORS)) u.storeSum({ to: to.at(v), vector: u.sumsOf({ values, v }) });
        }
      }
    },
  );
}
