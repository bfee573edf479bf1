/** Element types of tensors: sizes, DLPack's codes, and conversion between stored bits and f32 values. */

import { ArgumentError } from '../../base/errors.js';
import { e4m3ToF32, f16ToF32, f32ToBf16, f32ToE4m3, f32ToF16 } from '../../gpu/index.js';

/** The element types of tensors. `e4m3` is the OCP format without infinities (e4m3fn). */
export type Dtype = 'f32' | 'bf16' | 'f16' | 'e4m3' | 'u8' | 'i32' | 'u32';

/** The element types that rows of expert output may have. */
export type RowDtype = 'f32' | 'bf16' | 'f16';

/** The float types: those that convert to and from f32. */
export type FloatDtype = 'f32' | 'bf16' | 'f16' | 'e4m3';

/** Elements as they are stored: `Uint16Array` for bf16 and f16, `Uint8Array` for e4m3, the obvious ones for the rest. */
export type Bits = Float32Array | Uint16Array | Uint8Array | Int32Array | Uint32Array;

/** DLPack's notion of a type. */
export interface DlpackType {
  readonly code: number;
  readonly bits: number;
  readonly lanes: number;
}

interface Facts {
  readonly size: number;
  readonly dlpack: DlpackType;
  /** The type of array in which the host stores its elements. */
  readonly storage: BitsConstructor;
}

interface BitsConstructor {
  readonly name: string;
  new (length: number): Bits;
  new (buffer: ArrayBufferLike, byteOffset: number, length: number): Bits;
}

/** Facts about each dtype. DLPack's codes: 0 int, 1 uint, 2 float, 4 bfloat, 10 float8_e4m3fn. */
export const dtypes: Readonly<Record<Dtype, Facts>> = {
  f32: { size: 4, dlpack: { code: 2, bits: 32, lanes: 1 }, storage: Float32Array },
  bf16: { size: 2, dlpack: { code: 4, bits: 16, lanes: 1 }, storage: Uint16Array },
  f16: { size: 2, dlpack: { code: 2, bits: 16, lanes: 1 }, storage: Uint16Array },
  e4m3: { size: 1, dlpack: { code: 10, bits: 8, lanes: 1 }, storage: Uint8Array },
  u8: { size: 1, dlpack: { code: 1, bits: 8, lanes: 1 }, storage: Uint8Array },
  i32: { size: 4, dlpack: { code: 0, bits: 32, lanes: 1 }, storage: Int32Array },
  u32: { size: 4, dlpack: { code: 1, bits: 32, lanes: 1 }, storage: Uint32Array },
};

export function isFloat(dtype: Dtype): dtype is FloatDtype {
  return dtype === 'f32' || dtype === 'bf16' || dtype === 'f16' || dtype === 'e4m3';
}

export function requireDtype(argument: string, dtype: unknown, allowed = Object.keys(dtypes)): void {
  if (typeof dtype !== 'string' || !allowed.includes(dtype)) {
    throw new ArgumentError(argument, dtype, `one of ${allowed.join(', ')}`);
  }
}

export const floatDtypes = ['f32', 'bf16', 'f16', 'e4m3'];

/** Zeros, stored as `dtype` is. */
export function bitsArray(dtype: Dtype, length: number): Bits {
  return new dtypes[dtype].storage(length);
}

/** Bytes as elements of `dtype`: a view where their alignment allows, else a copy. */
export function bitsOf(dtype: Dtype, bytes: Uint8Array): Bits {
  const { size, storage } = dtypes[dtype];
  const aligned = bytes.byteOffset % size === 0 ? bytes : bytes.slice();
  return new storage(aligned.buffer, aligned.byteOffset, Math.floor(aligned.byteLength / size));
}

/** The values of stored elements. Every float type converts to f32 exactly. */
export function toF32(dtype: FloatDtype, bits: Bits): Float32Array {
  requireDtype('dtype', dtype, floatDtypes);
  requireBits('bits', dtype, bits, 0);
  const values = new Float32Array(bits.length);
  if (dtype === 'bf16') {
    // A bf16 is the upper half of an f32. All of them at once, as combine's reference widens tens of millions.
    const words = new Uint32Array(values.buffer);
    for (let i = 0; i < words.length; i++) words[i] = bits[i]! << 16;
  } else if (dtype === 'f16') {
    for (let i = 0; i < bits.length; i++) values[i] = f16ToF32(bits[i]!);
  } else if (dtype === 'e4m3') {
    for (let i = 0; i < bits.length; i++) values[i] = e4m3ToF32(bits[i]!);
  } else {
    values.set(bits);
  }
  return values;
}

/** Rounds values to `dtype`, to nearest and ties to even, into `into`; returns it. */
export function fromF32(dtype: FloatDtype, values: Float32Array, given?: Bits): Bits {
  requireDtype('dtype', dtype, floatDtypes);
  if (!(values instanceof Float32Array)) throw new ArgumentError('values', values, 'a Float32Array');
  const into = given ?? bitsArray(dtype, values.length);
  requireBits('into', dtype, into, values.length);
  if (dtype === 'bf16') for (let i = 0; i < values.length; i++) into[i] = f32ToBf16(values[i]!);
  else if (dtype === 'f16') for (let i = 0; i < values.length; i++) into[i] = f32ToF16(values[i]!);
  else if (dtype === 'e4m3') for (let i = 0; i < values.length; i++) into[i] = f32ToE4m3(values[i]!);
  else into.set(values);
  return into;
}

/** Requires elements as `dtype` is stored, at least so many. */
export function requireBits(argument: string, dtype: Dtype, bits: unknown, atLeast: number): void {
  const { storage } = dtypes[dtype];
  if (!(bits instanceof storage) || bits.length < atLeast) {
    const long = atLeast === 0 ? '' : ` of at least ${atLeast} elements`;
    throw new ArgumentError(argument, bits, `a ${storage.name}${long}, as ${dtype} is stored`);
  }
}
