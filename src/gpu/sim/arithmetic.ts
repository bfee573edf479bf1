/**
 * Arithmetic that JavaScript lacks, as generated code calls it. In registers both i32 and u32 are signed 32-bit
 * integers (so V8 keeps them small); a u32 is made unsigned only where that matters.
 *
 * Division never traps: x / 0 is all ones, x % 0 is x, INT_MIN / -1 is INT_MIN.
 */
import { bf16ToF32, e4m3ToF32, f16ToF32, f32ToBf16, f32ToE4m3, f32ToF16 } from '../index.js';

const allOnes = 0xffff_ffff_ffff_ffffn;

const scratchWord = new Int32Array(1);

export const arithmetic = {
  scratchWord,
  scratchFloat: new Float32Array(scratchWord.buffer),
  fround: Math.fround,
  imul: Math.imul,
  clz32: Math.clz32,
  u64: (x: bigint): bigint => BigInt.asUintN(64, x),
  u32of: (x: bigint): number => Number(BigInt.asIntN(32, x)),
  big: BigInt,

  idiv: (a: number, b: number): number => (b === 0 ? -1 : (a / b) | 0),
  irem: (a: number, b: number): number => (b === 0 ? a : (a % b) | 0),
  udiv: (a: number, b: number): number => (b === 0 ? -1 : ((a >>> 0) / (b >>> 0)) | 0),
  urem: (a: number, b: number): number => (b === 0 ? a : ((a >>> 0) % (b >>> 0)) | 0),
  ldiv: (a: bigint, b: bigint): bigint => (b === 0n ? allOnes : a / b),
  lrem: (a: bigint, b: bigint): bigint => (b === 0n ? a : a % b),

  /** f32 → integer truncates and saturates; NaN is 0. */
  f32ToI32: (x: number): number => (x >= 2147483648 ? 0x7fffffff : x <= -2147483648 ? -0x80000000 : x | 0),
  f32ToU32: (x: number): number => (x >= 4294967296 ? -1 : x > 0 ? x | 0 : 0),
  f32ToU64: (x: number): bigint => (x >= 2 ** 64 ? allOnes : x > 0 ? BigInt(Math.trunc(x)) : 0n),
  /** Rounded once: bits that f64 cannot hold are folded into a sticky lowest bit first. */
  u64ToF32: (x: bigint): number =>
    x < 0x20_0000_0000_0000n
      ? Math.fround(Number(x))
      : Math.fround(Number((x >> 11n) | ((x & 2047n) === 0n ? 0n : 1n)) * 2048),

  u64FromHalves: (low: number, high: number): bigint => (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0),

  bf16ToF32,
  f32ToBf16,
  f16ToF32,
  f32ToF16,
  e4m3ToF32,
  f32ToE4m3,
};
