/** Matrices in shared memory as PTX documents its canonical layouts for tensor cores, by formulas of the tests' own. */
import { f32ToBf16, f32ToE4m3, f32ToF16 } from '../../../../src/gpu/index.js';

const swizzles: Readonly<Record<number, bigint>> = { 0: 0n, 128: 1n, 64: 2n, 32: 3n };
export interface Form {
  readonly swizzle: number;
  readonly turned: boolean;
  /** Bytes between atoms, along the pieces of a line and to the next eight lines. */
  readonly near: number;
  readonly far: number;
}
const exchanged = (swizzle: number, at: number): number =>
  swizzle === 0 ? at : at ^ ((Math.floor(at / 128) % (swizzle / 16)) << 4);

/** The byte of an element of `size` bytes; `line` is a row, or turned a column. */
export function placeOf({ swizzle, near, far }: Form, line: number, at: number): number {
  const width = swizzle === 0 ? 16 : swizzle;
  const within = width * (line % 8) + (at % width);
  return exchanged(swizzle, Math.floor(line / 8) * far + Math.floor(at / width) * near + within);
}

export function descriptor({ swizzle, turned, near, far }: Form, start: number): bigint {
  const [leading, stride] = swizzle === 0 && turned ? [far, near] : [near, far];
  const at = BigInt(start >> 4) | (BigInt(leading >> 4) << 16n);
  return (swizzles[swizzle]! << 62n) | (BigInt(stride >> 4) << 32n) | at;
}

export const numbers: Readonly<Record<string, { size: number; bits(value: number): number }>> = {
  bf16: { size: 2, bits: f32ToBf16 },
  f16: { size: 2, bits: f32ToF16 },
  tf32: { size: 4, bits: (value) => new Int32Array(Float32Array.of(value).buffer)[0]! | 0x1abc },
  e4m3: { size: 1, bits: f32ToE4m3 },
  e5m2: { size: 1, bits: (value) => f32ToF16(value) >> 8 },
  s8: { size: 1, bits: (value) => value & 255 },
  u8: { size: 1, bits: (value) => (value + 4) & 255 },
};

export const along = (swizzle: number): Form => ({ swizzle, turned: false, near: 16, far: 8 * swizzle });
export const plain = { swizzle: 0, turned: false, near: 1024, far: 128 };
/** 64 rows, of which a line has as many as the swizzle; sixteen lines. */
export const turned = (swizzle: number): Form => ({
  swizzle,
  turned: true,
  near: 16 * swizzle,
  far: 8 * swizzle,
});
