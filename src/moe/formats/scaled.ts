/**
 * Formats that round a row to e4m3 with scales. Kernels cut such a row into stretches: 32 vectors of 16 elements, one for each
 * lane of a warp, and 4 words of scales. Portable and hybrid have the words of a stretch behind it, so that a part of a row is one
 * piece of memory. The last stretch may be shorter. docs/semantics.md has the arithmetic.
 */
import { constant, device, pointer } from '../../lang/index.js';
import { dtypes, type RowDtype } from './dtype.js';
import { laneValues, type Rounding, type RowShape, type ScaledFormat } from './format.js';
import { dequantise, quantise } from './scales.js';

export const scaled = (
  { block, scale }: Pick<ScaledFormat, 'block' | 'scale'>,
  rounding: Rounding,
): ScaledFormat => ({
  multiple: 16,
  mostThreads: 512,
  bytes: ({ hidden }) => hidden + 4 * Math.ceil(hidden / 128),
  sums: () => 'f32',
  together: (dtype) => 32 * dtypes[dtype].size,
  arrives: (row) => dequantise(quantise(row, block), block),
  ...{ rounding, block, scale },
});

export function stretchesOf({ hidden }: Pick<RowShape, 'hidden'>) {
  const stretches = Math.ceil(hidden / (32 * 16));
  return {
    /** Vectors of elements. */
    UNITS: hidden / 16,
    STRETCHES: stretches,
    /** Vectors of a stretch: the lanes' elements, then the scales. */
    STRETCH: 33,
    /** Vectors of the whole row, scales included. */
    ALL: Math.ceil(hidden / 16) + stretches,
  };
}

/** Bits of the largest magnitude among the values of the lanes that share a scale: they compare as the magnitudes do. */
export const largestOf = (block: number) =>
  device(
    { params: laneValues, returns: 'u32', using: { LEVELS: Math.log2(block / 16) } },
    (g, { values }, { LEVELS }) => {
      let largest = g.u32(0);
      for (const n of g.unroll(16)) largest = g.max(largest, g.bits('u32', values[n]!) & 0x7fffffff);
      for (const by of g.unroll(LEVELS)) largest = g.max(largest, g.warp.shuffleXor(largest, 1 << by));
      return largest;
    },
  );

/**
 * The exponent of their scale: the smallest power of two that brings the largest magnitude to 448 = 1.75 · 2^8 or less. The
 * addition carries into the exponent where the mantissa exceeds 1.75. Dividing by the scale is multiplying by 2^-it, exactly.
 */
export const exponentFor = device(
  { params: { largest: 'u32' }, returns: 'u32' },
  (g, { largest }) => g.max((largest + 0x1fffff) >> 23, g.u32(9)) - 8,
);

/** A lane's 16 values of a row in memory: `i` is their place, in such units. Lanes beyond the row have zeros. */
export function loadValues({ hidden }: Pick<RowShape, 'hidden'>, dtype: RowDtype) {
  const { size } = dtypes[dtype];
  return device(
    {
      params: { from: pointer('v16'), i: 'u32', ...laneValues },
      using: {
        UNITS: hidden / 16,
        DTYPE: dtype,
        /** The vectors that hold 16 elements, and the elements in each. */
        VECTORS: size,
        LANES: 16 / size,
      },
    },
    (g, { from, i, values }, u) => {
      const row = g.registers('v16', u.VECTORS);
      if (i < u.UNITS) {
        for (const v of g.unroll(u.VECTORS)) row[v] = g.load(from.at(i * u.VECTORS + v), { cache: 'stream' });
      }
      for (const n of g.unroll(16))
        values[n] = g.f32(g.lane(row[(n - (n % u.LANES)) / u.LANES]!, u.DTYPE, n % u.LANES));
    },
  );
}

/** Vector `v` of those that hold a lane's 16 sums in the caller's tensor. */
export function sumsOf(dtype: RowDtype) {
  const { size } = dtypes[dtype];
  return device(
    { params: { ...laneValues, v: constant() }, returns: 'v16', using: { DTYPE: dtype, LANES: 16 / size } },
    (g, { values, v }, u) => {
      const some = g.registers('f32', u.LANES);
      for (const lane of g.unroll(u.LANES)) some[lane] = values[v * u.LANES + lane]!;
      return g.pack(u.DTYPE, some);
    },
  );
}

/** Rounds 16 values of each lane of a warp, and stores them as a stretch of the row at `to`. */
export function storeStretch(row: RowShape, { narrow }: Rounding) {
  const { UNITS, STRETCH } = stretchesOf(row);
  return device(
    { params: { to: pointer('v16'), stretch: 'u32', ...laneValues }, using: { UNITS, STRETCH, narrow } },
    (g, { to, stretch, values }, u) => {
      const scales = u.narrow({ values });
      if (stretch * 32 + g.laneId < u.UNITS) {
        const here = to.at(stretch * u.STRETCH);
        const vectors = g.min(u.UNITS - stretch * 32, g.u32(32));
        g.store(here.at(g.laneId), g.pack('e4m3', values));
        if (g.laneId % 8 === 0) g.store(here.as('u32').at(vectors * 4 + g.laneId / 8), scales);
      }
    },
  );
}
