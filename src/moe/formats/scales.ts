/** Rows as e4m3 with scales, in the plainest code: the reference of the formats that round. */
import { e4m3ToF32, f32ToE4m3 } from '../../gpu/index.js';
import type { Bits } from './dtype.js';
import type { ScaledFormat } from './format.js';

/** Elements that share one scale when rows travel as e4m3. */
export const scaleBlock = 128;

/**
 * A row as e4m3 with one scale per block of 128 elements, or of so many: the smallest power of two that is at least 2^-126
 * and brings the block's largest magnitude to 448 (the largest e4m3) or less. Dividing by a power of two and multiplying by
 * it again are exact, so the rounding to e4m3 is the only error, and no two machines can disagree on it.
 *
 * A block with an infinity or a NaN gets the scale NaN: it arrives as NaN, never as plausible numbers.
 */
export function quantise(row: Float32Array, size = scaleBlock) {
  const e4m3 = new Uint8Array(row.length);
  // One per block (the last may be shorter): a power of two, or NaN.
  const scales = new Float32Array(Math.ceil(row.length / size));
  const words = new Uint32Array(row.buffer, row.byteOffset, row.length);
  for (let block = 0; block < scales.length; block++) {
    const start = block * size;
    const end = Math.min(start + size, row.length);
    let amaxBits = 0;
    for (let i = start; i < end; i++) amaxBits = Math.max(amaxBits, words[i]! & 0x7fffffff);
    const scale = scaleFor(amaxBits);
    scales[block] = scale;
    for (let i = start; i < end; i++) e4m3[i] = f32ToE4m3(Math.fround(row[i]! / scale));
  }
  return { e4m3, scales };
}

/**
 * The scale for a block whose largest magnitude has these f32 bits, from the bits alone. 448 is 1.75 · 2^8: with
 * amax = m · 2^p the exponent of the scale is p − 8, or p − 7 when m > 1.75, and adding 0x1fffff to the bits carries
 * into the exponent exactly when m > 1.75.
 */
function scaleFor(amaxBits: number): number {
  if (amaxBits >= 0x7f800000) return Number.NaN;
  const exponent = Math.max(1, ((amaxBits + 0x1fffff) >>> 23) - 8);
  return 2 ** (exponent - 127);
}

/** The value of a quantised row after its way: element times scale, exact. */
export function dequantise({ e4m3, scales }: ReturnType<typeof quantise>, size = scaleBlock): Float32Array {
  const row = new Float32Array(e4m3.length);
  for (let i = 0; i < row.length; i++) row[i] = e4m3ToF32(e4m3[i]!) * scales[Math.floor(i / size)]!;
  return row;
}

/** The numbers of ue8m0: powers of two by their exponents; 255 is NaN. */
export const fromUe8m0 = (bytes: Uint8Array): Float32Array =>
  Float32Array.from(bytes, (exponent) => (exponent === 255 ? Number.NaN : 2 ** (exponent - 127)));

/** Elements of MXFP4 that share a scale, a ue8m0: so many e2m1 take 16 bytes. */
export const mxfp4Block = 32;

const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/** The numbers of e2m1, two a byte: that in the lower half comes first. */
export const fromE2m1 = (bytes: Uint8Array): Float32Array =>
  Float32Array.from({ length: 2 * bytes.length }, (_, i) => {
    const bits = bytes[i >> 1]! >> (4 * (i % 2));
    return (bits & 8 ? -1 : 1) * e2m1[bits & 7]!;
  });

/** The parts of rows that dispatch rounds to this format: the elements, and the scales as they are stored. */
export function roundRows(
  values: Float32Array,
  { block, scale }: Pick<ScaledFormat, 'block' | 'scale'>,
): { readonly e4m3: Uint8Array; readonly scales: Bits } {
  const { e4m3, scales } = quantise(values, block);
  if (scale === 'f32') return { e4m3, scales };
  // A ue8m0 is the exponent of the f32.
  return { e4m3, scales: Uint8Array.from(new Uint32Array(scales.buffer), (word) => word >>> 23) };
}
