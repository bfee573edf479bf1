import { describe, expect, it } from 'vitest';
import { bf16ToF32, e4m3ToF32, f16ToF32, f32ToBf16, f32ToE4m3, f32ToF16 } from '../../src/gpu/index.js';

const f32Bits = (value: number): number => new Int32Array(Float32Array.of(value).buffer)[0]!;
const f32FromBits = (bits: number): number => new Float32Array(Int32Array.of(bits).buffer)[0]!;

/** The value of a small float, from its definition. `special`: the top exponent means infinity and NaN. */
function definedValue(bits: number, exponentBits: number, fractionBits: number, special: boolean): number {
  const sign = bits >>> (exponentBits + fractionBits) ? -1 : 1;
  const top = 2 ** exponentBits - 1;
  const exponent = (bits >>> fractionBits) & top;
  const fraction = bits & (2 ** fractionBits - 1);
  const bias = 2 ** (exponentBits - 1) - 1;
  if (special && exponent === top) return fraction ? NaN : sign * Infinity;
  if (!special && exponent === top && fraction === 2 ** fractionBits - 1) return NaN;
  if (exponent === 0) return sign * fraction * 2 ** (1 - bias - fractionBits);
  return sign * (1 + fraction / 2 ** fractionBits) * 2 ** (exponent - bias);
}

const formats = [
  ['bf16', 8, 7, true, 0x7fff, bf16ToF32, f32ToBf16],
  ['f16', 5, 10, true, 0x7fff, f16ToF32, f32ToF16],
  ['e4m3', 4, 3, false, 0x7f, e4m3ToF32, f32ToE4m3],
] as const;

describe.each(formats)('%s', (_, exponentBits, fractionBits, special, nan, decode, encode) => {
  const size = 2 ** (1 + exponentBits + fractionBits);
  const defined = (bits: number): number => definedValue(bits, exponentBits, fractionBits, special);
  const half = size / 2;

  it('decodes every value as its definition says', () => {
    const wrong: number[] = [];
    for (let bits = 0; bits < size; bits++) {
      if (!Object.is(decode(bits), defined(bits))) wrong.push(bits);
    }
    expect(wrong).toEqual([]);
  });

  it('encodes every value it can hold back to its own bits', () => {
    const wrong: number[] = [];
    for (let bits = 0; bits < size; bits++) {
      const value = defined(bits);
      const want = Number.isNaN(value) ? nan : bits;
      if (encode(value) !== want) wrong.push(bits);
    }
    expect(wrong).toEqual([]);
  });

  it('rounds between every two neighbours to the nearest, ties to even', () => {
    // Neighbours are exact in f64; their midpoint is exact in f32, since every format has at most 11 significant bits.
    const wrong: string[] = [];
    const largest = special ? half - 2 ** fractionBits - 1 : half - 2;
    for (let low = 0; low < largest; low++) {
      const a = defined(low);
      const b = defined(low + 1);
      const middle = (a + b) / 2;
      if (Math.fround(middle) !== middle) continue; // bf16 subnormals: the midpoint is below f32's own grid
      const below = f32FromBits(f32Bits(middle) - 1);
      const above = f32FromBits(f32Bits(middle) + 1);
      for (const sign of [1, -1]) {
        const signBits = sign < 0 ? half : 0;
        if (encode(sign * middle) !== (signBits | (low % 2 ? low + 1 : low))) wrong.push(`tie ${low}`);
        if (below > a && encode(sign * below) !== (signBits | low)) wrong.push(`below ${low}`);
        if (above < b && encode(sign * above) !== (signBits | (low + 1))) wrong.push(`above ${low}`);
      }
    }
    expect(wrong).toEqual([]);
  });
});

describe('values too large', () => {
  it('become infinity in bf16 and f16 from half an ulp above the largest', () => {
    expect(f32ToF16(65504)).toBe(0x7bff);
    expect(f32ToF16(65519.99609375)).toBe(0x7bff);
    expect(f32ToF16(65520)).toBe(0x7c00);
    expect(f32ToF16(-1e30)).toBe(0xfc00);
    expect(f32ToF16(-Infinity)).toBe(0xfc00);
    expect(f32ToBf16(3.4028234663852886e38)).toBe(0x7f80);
    expect(f32ToBf16(-Infinity)).toBe(0xff80);
  });

  it('saturate in e4m3, infinity too', () => {
    expect(f32ToE4m3(448)).toBe(0x7e);
    expect(f32ToE4m3(480)).toBe(0x7e);
    expect(f32ToE4m3(1e30)).toBe(0x7e);
    expect(f32ToE4m3(-Infinity)).toBe(0xfe);
    expect(f32ToE4m3(447)).toBe(0x7e);
  });
});
