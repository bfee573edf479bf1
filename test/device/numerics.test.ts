import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bf16ToF32, e4m3ToF32, f16ToF32, f32ToBf16, f32ToE4m3, f32ToF16 } from '../../src/device/index.js';

/** A narrow float as all it needs: its values in order, and the widths that say which neighbour is even. */
const formats = [
  {
    name: 'bf16',
    bits: 16,
    to: f32ToBf16,
    from: bf16ToF32,
    maxFinite: 0x7f7f,
    infinity: 0x7f80,
    nan: 0x7fff,
  },
  { name: 'f16', bits: 16, to: f32ToF16, from: f16ToF32, maxFinite: 0x7bff, infinity: 0x7c00, nan: 0x7fff },
  { name: 'e4m3', bits: 8, to: f32ToE4m3, from: e4m3ToF32, maxFinite: 0x7e, infinity: undefined, nan: 0x7f },
] as const;

describe.each(formats)('$name', ({ bits, to, from, maxFinite, infinity, nan }) => {
  const sign = 1 << (bits - 1);

  it('widens and narrows every value to itself', () => {
    for (let code = 0; code <= maxFinite; code++) {
      expect(to(from(code))).toBe(code);
      expect(to(from(code | sign))).toBe(code | sign);
    }
  });

  it('is ordered: the next code is the next value', () => {
    for (let code = 1; code <= maxFinite; code++) expect(from(code)).toBeGreaterThan(from(code - 1));
  });

  it('rounds halfway points to even and everything else to the nearer neighbour', () => {
    for (let code = 0; code < maxFinite; code++) {
      const [low, high] = [from(code), from(code + 1)];
      const tie = (low + high) / 2; // fits an f32 in every format, save the last bit of bf16 subnormals
      if (Math.fround(tie) !== tie) continue;
      const step = Math.max(tie * 2 ** -23, 2 ** -149);
      expect(to(tie)).toBe(code % 2 === 0 ? code : code + 1);
      expect(to(tie - step)).toBe(code);
      expect(to(tie + step)).toBe(code + 1);
      expect(to(-tie)).toBe((code % 2 === 0 ? code : code + 1) | sign);
    }
  });

  it('picks the nearest value for any f32 in range', () => {
    fc.assert(
      fc.property(fc.float({ noNaN: true, min: -448, max: 448 }), (x) => {
        const code = to(x);
        const error = Math.abs(from(code) - x);
        const magnitude = code & ~sign;
        if (magnitude > 0) expect(Math.abs(from(code - 1) - x)).toBeGreaterThanOrEqual(error);
        if (magnitude < maxFinite) expect(Math.abs(from(code + 1) - x)).toBeGreaterThanOrEqual(error);
      }),
      { seed: 1, numRuns: 2000 },
    );
  });

  it('keeps NaN, the sign of zero, and overflows as its format does', () => {
    expect(to(Number.NaN)).toBe(nan);
    expect(from(nan)).toBeNaN();
    expect(to(0)).toBe(0);
    expect(to(-0)).toBe(sign);
    expect(Object.is(from(sign), -0)).toBe(true);
    const over = infinity ?? maxFinite;
    expect(to(Number.POSITIVE_INFINITY)).toBe(over);
    expect(to(Number.NEGATIVE_INFINITY)).toBe(over | sign);
    expect(to(3.4e38)).toBe(over);
  });
});

it('f16 overflows from the halfway point to the value after the last', () => {
  expect(f32ToF16(65519.996)).toBe(0x7bff);
  expect(f32ToF16(65520)).toBe(0x7c00);
});
