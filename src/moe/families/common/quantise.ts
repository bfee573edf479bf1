/** Rows as e4m3 with a scale for every 128 elements (docs/semantics.md has the arithmetic). */
import { device, registers } from '../../../lang/index.js';

/**
 * 16 values of a lane, of 128 that 8 neighbouring lanes hold: divided by a scale that they share. Returns the scale's bits.
 * All lanes of the warp take part. Scales are positive; a NaN among the values makes it 0x7fc00000.
 */
export const quantise = device(
  { name: 'quantise', params: { values: registers('f32', 16) }, returns: 'u32' },
  (g, { values }) => {
    // Bits of magnitudes compare as the magnitudes do.
    let largest = g.u32(0);
    for (const n of g.unroll(16)) largest = g.max(largest, g.bits('u32', values[n]!) & 0x7fffffff);
    for (const by of g.unroll(3)) largest = g.max(largest, g.warp.shuffleXor(largest, 1 << by));

    // The smallest power of two that brings the largest magnitude to 448 = 1.75 · 2^8 or less: the addition
    // carries into the exponent where the mantissa exceeds 1.75. Dividing by it is multiplying by 2^-it, exactly.
    const exponent = g.max((largest + 0x1fffff) >> 23, g.u32(9)) - 8;
    const inverse = g.bits('f32', (254 - exponent) << 23);
    for (const n of g.unroll(16)) values[n]! *= inverse;
    // An infinity or a NaN makes all of its block NaN, never plausible numbers.
    return largest < 0x7f800000 ? exponent << 23 : g.u32(0x7fc00000);
  },
);
