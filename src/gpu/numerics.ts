/**
 * The storage types as numbers: exact conversions between f32 and bf16, f16 and e4m3, each rounded to nearest even
 * in one step, as the GPU's conversion instructions do it. A storage value is its bits in an integer.
 */
const word = new Int32Array(1);
const float = new Float32Array(word.buffer);

export function bf16ToF32(bits: number): number {
  word[0] = bits << 16;
  return float[0]!;
}

/** NaN becomes the canonical 0x7fff, as on the GPU. */
export function f32ToBf16(value: number): number {
  float[0] = value;
  const bits = word[0]!;
  if (Number.isNaN(value)) return 0x7fff;
  // Half an ulp, less one where the kept part is even: ties go to even, and a carry walks into the exponent.
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** Adding and taking away 2^52 leaves a small non-negative double rounded to an integer, ties to even. */
const roundingShift = 2 ** 52;

export function f16ToF32(bits: number): number {
  const exponent = (bits >>> 10) & 31;
  const fraction = bits & 0x3ff;
  const sign = (bits & 0x8000) << 16;
  if (exponent === 0) {
    const magnitude = fraction * 2 ** -24;
    return sign === 0 ? magnitude : -magnitude;
  }
  if (exponent === 31) return fraction !== 0 ? NaN : sign === 0 ? Infinity : -Infinity;
  word[0] = sign | ((exponent + 112) << 23) | (fraction << 13);
  return float[0]!;
}

/** Too large becomes infinity; NaN becomes the canonical 0x7fff. */
export function f32ToF16(value: number): number {
  if (Number.isNaN(value)) return 0x7fff;
  float[0] = value;
  const bits = word[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  // Below 2^-14 an f16 is a multiple of 2^-24.
  if (magnitude < 0x38800000) {
    return sign | (Math.abs(value) * 2 ** 24 + roundingShift - roundingShift);
  }
  const rounded = ((magnitude + 0xfff + ((magnitude >>> 13) & 1)) >>> 13) - (112 << 10);
  return sign | Math.min(rounded, 0x7c00);
}

const e4m3Values = Float32Array.from({ length: 256 }, (_, bits) => {
  const sign = bits & 0x80 ? -1 : 1;
  const exponent = (bits >>> 3) & 15;
  const fraction = bits & 7;
  if (exponent === 15 && fraction === 7) return NaN;
  return exponent === 0 ? sign * fraction * 2 ** -9 : sign * (8 + fraction) * 2 ** (exponent - 10);
});

/** e4m3 as OCP defines it: largest finite value 448, no infinity, one NaN a sign. */
export function e4m3ToF32(bits: number): number {
  return e4m3Values[bits & 0xff]!;
}

/** Saturates to ±448, infinity too; NaN becomes 0x7f. */
export function f32ToE4m3(value: number): number {
  if (Number.isNaN(value)) return 0x7f;
  float[0] = value;
  const bits = word[0]!;
  const sign = (bits >>> 24) & 0x80;
  const magnitude = bits & 0x7fffffff;
  // From 448 on, the largest number of e4m3.
  if (magnitude >= 0x43e00000) return sign | 0x7e;
  // Below 2^-6 an e4m3 is a multiple of 2^-9.
  if (magnitude < 0x3c800000) {
    return sign | (Math.abs(value) * 512 + roundingShift - roundingShift);
  }
  return sign | (((magnitude + 0x7ffff + ((magnitude >>> 20) & 1)) >>> 20) - (120 << 3));
}
