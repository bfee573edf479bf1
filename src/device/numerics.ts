/**
 * Conversions between f32 and the narrower floats, to nearest and ties to even, on their stored bits: what a GPU's
 * conversion instructions do. Widening is exact. A NaN becomes the canonical NaN of the narrower type.
 */
const real = new Float32Array(1);
const word = new Uint32Array(real.buffer);

/** The 16 bits of the bf16 nearest to `x`. Overflow gives an infinity. */
export function f32ToBf16(x: number): number {
  real[0] = x;
  const bits = word[0]!;
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** The value of a bf16's 16 bits. */
export function bf16ToF32(bits: number): number {
  word[0] = bits << 16;
  return real[0]!;
}

/** The 16 bits of the f16 nearest to `x`. Overflow gives an infinity. */
export function f32ToF16(x: number): number {
  real[0] = x;
  const sign = (word[0]! >>> 16) & 0x8000;
  const bits = word[0]! & 0x7fffffff;
  if (bits > 0x7f800000) return 0x7fff;
  if (bits >= 0x477ff000) return sign | 0x7c00; // 65520 and more
  if (bits < 0x38800000) return sign | nearest(real[0]! * 2 ** 24); // below 2^-14: whole steps of 2^-24
  // Rounding may carry into the exponent, which is right. Exponents are biased by 127 and 15.
  return sign | ((bits - (112 << 23) + 0xfff + ((bits >>> 13) & 1)) >>> 13);
}

/** The value of an f16's 16 bits. */
export function f16ToF32(bits: number): number {
  const exponent = (bits >>> 10) & 31;
  const fraction = bits & 0x3ff;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  word[0] = ((bits & 0x8000) << 16) | ((exponent + 112) << 23) | (fraction << 13);
  return real[0]!;
}

/** The 8 bits of the e4m3 (OCP e4m3fn) nearest to `x`. Saturates at ±448, infinities too; NaN is 0x7f. */
export function f32ToE4m3(x: number): number {
  real[0] = x;
  const sign = (word[0]! >>> 24) & 0x80;
  const bits = word[0]! & 0x7fffffff;
  if (bits > 0x7f800000) return 0x7f;
  if (bits >= 0x43e00000) return sign | 0x7e; // 448 and more
  if (bits < 0x3c800000) return sign | nearest(real[0]! * 2 ** 9); // below 2^-6: whole steps of 2^-9
  return sign | ((bits - (120 << 23) + 0x7ffff + ((bits >>> 20) & 1)) >>> 20);
}

/** The value of an e4m3's 8 bits. */
export function e4m3ToF32(bits: number): number {
  const exponent = (bits >>> 3) & 15;
  const fraction = bits & 7;
  const sign = bits & 0x80 ? -1 : 1;
  if (exponent === 0) return sign * fraction * 2 ** -9;
  if (exponent === 15 && fraction === 7) return Number.NaN;
  word[0] = ((bits & 0x80) << 24) | ((exponent + 120) << 23) | (fraction << 20);
  return real[0]!;
}

/** |x| rounded to the nearest integer, ties to even; |x| is small. */
function nearest(x: number): number {
  const magnitude = Math.abs(x);
  const below = Math.floor(magnitude);
  const rest = magnitude - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
}
