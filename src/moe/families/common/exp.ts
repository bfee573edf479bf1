/** e^x in f32, from operations that both machines compute alike: the same bits on a GPU and in the simulator. */
import { device } from '../../../lang/index.js';

/**
 * Within 2 units in the last place, subnormal results too; +0 and infinity where those would be out of range; NaN of NaN.
 * x is n · ln 2 + r: a polynomial gives e^r, which two powers of two that multiply to 2^n bring to its place.
 */
export const exp = device(
  {
    params: { x: 'f32' },
    returns: 'f32',
    using: {
      LOG2E: Math.fround(Math.LOG2E),
      // ln 2 as a number of few bits, whose product with n is exact, and the rest.
      LN2_HIGH: 0.693145751953125,
      LN2_LOW: Math.fround(Math.LN2 - 0.693145751953125),
      // Adding 1.5 · 2^23 rounds to an integer, which then stands in the low bits.
      ROUNDER: 12_582_912,
      // Of e^r for |r| ≤ ln 2 / 2, the largest power first.
      COEFFICIENTS: [1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1, 1].map(Math.fround),
    },
  },
  (g, { x }, u) => {
    // Beyond these the result is +0 or infinity.
    const inRange = g.max(g.min(x, g.f32(89)), g.f32(-104));
    const shifted = g.fma(inRange, u.LOG2E, g.f32(u.ROUNDER));
    const n = shifted - u.ROUNDER;
    const whole = g.bits('i32', shifted) - g.bits('i32', g.f32(u.ROUNDER));
    const r = g.fma(n, g.f32(-u.LN2_LOW), g.fma(n, g.f32(-u.LN2_HIGH), inRange));
    let e = g.f32(u.COEFFICIENTS[0]!);
    for (const i of g.unroll(u.COEFFICIENTS.length - 1)) e = g.fma(e, r, g.f32(u.COEFFICIENTS[i + 1]!));
    const half = whole >> 1;
    const power = e * g.bits('f32', (half + 127) << 23) * g.bits('f32', (whole - half + 127) << 23);
    return g.select(x <= 0 || x > 0, power, x); // a NaN is neither
  },
);
