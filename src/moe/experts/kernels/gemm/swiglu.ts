/** SwiGLU and gpt-oss's form of it; and SwiGLU as a launch of its own, for GEMMs that leave gates and what they scale side by side. */
import { constant, device, kernel, list, pointer, registers } from '../../../../lang/index.js';
import { clampedSwiglu } from '../../../layer/index.js';

/**
 * x / (1 + e^−x). GEMMs compute it between two tiles, so it has no branch and few operations. The result is within 8 units in
 * the last place where |x| ≤ 20, and within 24 where |x| ≤ 80; that of NaN is NaN. e^−x is 2^n · 2^f, where −x · log2 e = n + f
 * and |f| ≤ 1/2: a polynomial gives 2^f, and n is added to its exponent. Newton's steps give the reciprocal.
 */
export const silu = device(
  {
    params: { x: 'f32' },
    returns: 'f32',
    using: {
      LOG2E: Math.fround(Math.LOG2E),
      // Adding 1.5 · 2^23 rounds to an integer, which then stands in the low bits.
      ROUNDER: 12_582_912,
      // Of 2^f, the largest power first.
      COEFFICIENTS: [720, 120, 24, 6, 2, 1, 1].map((factorial, i) =>
        Math.fround(Math.LN2 ** (6 - i) / factorial),
      ),
      // These bits minus a number's own bits are those of its reciprocal, within an eighth of it.
      RECIPROCAL: 0x7ef311c7,
    },
  },
  (g, { x }, u) => {
    // Above 80, 1 / (1 + e^−x) is 1. Below −80 it stays at 2e−35.
    const inRange = g.max(g.min(x, g.f32(80)), g.f32(-80));
    const shifted = g.fma(inRange, -u.LOG2E, g.f32(u.ROUNDER));
    const f = g.fma(inRange, -u.LOG2E, u.ROUNDER - shifted);
    let power = g.f32(u.COEFFICIENTS[0]!);
    for (const i of g.unroll(u.COEFFICIENTS.length - 1))
      power = g.fma(power, f, g.f32(u.COEFFICIENTS[i + 1]!));
    const below = 1 + g.bits('f32', g.bits('i32', power) + (g.bits('i32', shifted) << 23));
    let r = g.bits('f32', g.i32(u.RECIPROCAL) - g.bits('i32', below));
    for (const _ of g.unroll(2)) {
      const error = g.fma(-below, r, g.f32(1));
      r = g.fma(r, g.fma(error, error, error), r);
    }
    return x * r;
  },
);

/** Prepares two of `values`, a gate and what it scales: silu(gate) · up of the two is then gpt-oss's activation. NaN stays NaN. */
export const clamp = device(
  {
    params: { values: registers('f32'), gate: constant<number>(), up: constant<number>() },
    using: { LIMIT: clampedSwiglu.limit, SLOPE: Math.fround(clampedSwiglu.slope) },
  },
  (g, { values, gate, up }, u) => {
    const limit = g.f32(u.LIMIT);
    // Not by g.min, which makes a number of NaN.
    const least = g.select(values[gate]! > limit, limit, values[gate]!);
    const below = g.select(values[up]! > limit, limit, values[up]!);
    // gate · sigmoid(slope · gate) = silu(slope · gate) / slope.
    values[gate] = least * u.SLOPE;
    values[up] = (g.select(below < -limit, -limit, below) + 1) * (1 / u.SLOPE);
  },
);

/** For rows of 2 · inner elements, a multiple of 8: those of a plan, or as many as the host says. */
export function swigluKernel(inner: number, threads: number, of: 'plan' | 'all') {
  return kernel(
    {
      name: 'experts_swiglu',
      maxThreads: threads,
      params: {
        /** How many rows there are: of a plan, which the GPU knows, or as the host says. */
        total: list(pointer('u32'), of === 'plan' ? 1 : 0),
        count: list('u32', of === 'all' ? 1 : 0),
        /** [row][2 · inner]: gates, then what they scale; and [row][inner]. */
        from: pointer('v16'),
        to: pointer('v16'),
      },
      using: { UNITS: inner / 8, silu },
    },
    (g, { total, count, from, to }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      let rows = g.u32(0);
      if (count.length > 0) rows = count[0]!;
      else rows = g.load(total[0]!);
      const vectors = rows * u.UNITS;
      for (
        let i = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
        i < vectors;
        i += g.gridDim.x * g.blockDim.x
      ) {
        const at = from.at(2 * u.UNITS * (i / u.UNITS) + (i % u.UNITS));
        const gate = g.load(at, { cache: 'stream' });
        const up = g.load(at.at(u.UNITS), { cache: 'stream' });
        const made = g.registers('f32', 8);
        for (const lane of g.unroll(8))
          made[lane] = u.silu({ x: g.f32(g.lane(gate, 'bf16', lane)) }) * g.f32(g.lane(up, 'bf16', lane));
        g.store(to.at(i), g.pack('bf16', made));
      }
    },
  );
}
