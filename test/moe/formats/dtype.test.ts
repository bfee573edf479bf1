import { describe, expect, it } from 'vitest';
import { bf16ToF32, e4m3ToF32, f16ToF32, f32ToBf16, f32ToE4m3, f32ToF16 } from '../../../src/gpu/index.js';
import {
  bitsArray,
  bitsOf,
  type Dtype,
  dtypes,
  fromF32,
  isFloat,
  toF32,
} from '../../../src/moe/layer/index.js';
import { randomElements } from '../../../src/verify/testing/index.js';

describe.each([
  { dtype: 'bf16', codes: 2 ** 16, widen: bf16ToF32, narrow: f32ToBf16 },
  { dtype: 'f16', codes: 2 ** 16, widen: f16ToF32, narrow: f32ToF16 },
  { dtype: 'e4m3', codes: 2 ** 8, widen: e4m3ToF32, narrow: f32ToE4m3 },
] as const)('arrays of $dtype', ({ dtype, codes, widen, narrow }) => {
  it('convert as single elements do', () => {
    const bits = bitsArray(dtype, codes).map((_, code) => code);
    expect(toF32(dtype, bits)).toEqual(Float32Array.from(bits, widen));
    const values = randomElements('f32', 2000, 1, 30) as Float32Array;
    expect(Array.from(fromF32(dtype, values))).toEqual(Array.from(values, narrow));
  });
});

it('arrays of f32 are copied, not shared', () => {
  const bits = Float32Array.of(1, 2);
  toF32('f32', bits)[0] = 9;
  fromF32('f32', bits)[0] = 9;
  expect(bits).toEqual(Float32Array.of(1, 2));
});

it('bytes become elements wherever they lie', () => {
  const bytes = Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7, 8);
  expect(bitsOf('bf16', bytes.subarray(2, 6))).toEqual(Uint16Array.of(0x0302, 0x0504));
  expect(bitsOf('u32', bytes.subarray(1, 9))).toEqual(Uint32Array.of(0x04030201, 0x08070605));
});

it('every dtype says what it takes', () => {
  for (const [dtype, { size, dlpack, storage }] of Object.entries(dtypes)) {
    expect(dlpack.bits).toBe(size * 8);
    expect(new storage(3).byteLength).toBe(size * 3);
    expect(isFloat(dtype as Dtype)).toBe(['f32', 'bf16', 'f16', 'e4m3'].includes(dtype));
  }
});
