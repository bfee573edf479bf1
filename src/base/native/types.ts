import koffi, { type TypeObject } from 'koffi';

/** A machine address as a plain number. User-space addresses stay under 2^47, so a number holds them exactly. */
export type Address = number;

/**
 * How one value crosses into C.
 * - `address`: a pointer as a plain number, both ways. The fastest and the only kind for hot calls.
 * - `buffer`: a parameter only: a typed array or ArrayBuffer whose memory C may read and write during the call.
 * - `string`: NUL-terminated UTF-8, copied.
 * - `i64`, `u64`: pass a number (or a bigint); results are numbers while they are safe integers, else bigints.
 */
export type NativeType = keyof Values | ByValue;

/** A structure passed or returned by value; in JavaScript it is `{ bytes: Uint8Array }`. */
export interface ByValue {
  readonly bytes: number;
}

/** A structure of `bytes` opaque bytes, passed by value: handles such as CUDA's 64-byte IPC handles. */
export function byValue(bytes: number): ByValue {
  return { bytes };
}

/** The form of an argument of each type, and of a result; 64-bit results of the functions that are declared are safe integers. */
interface Values {
  void: undefined;
  bool: boolean;
  u8: number;
  i32: number;
  u32: number;
  i64: number;
  u64: number;
  f32: number;
  f64: number;
  address: Address;
  buffer: ArrayBufferView | ArrayBufferLike;
  string: string;
}
type Result<T extends NativeType> = T extends keyof Values ? Values[T] : { readonly bytes: Uint8Array };
type Argument<T extends NativeType> = T extends 'i64' | 'u64' ? number | bigint : Result<T>;

/** A foreign function: what it returns, then what it takes. */
export type Signature = readonly [result: NativeType, ...parameters: NativeType[]];

export type NativeFunction<S extends Signature> = S extends readonly [
  infer R extends NativeType,
  ...infer P extends readonly NativeType[],
]
  ? (...args: { -readonly [K in keyof P]: Argument<P[K]> }) => Result<R>
  : never;

export type Signatures = Readonly<Record<string, Signature>>;
export type NativeFunctions<T extends Signatures> = { readonly [Name in keyof T]: NativeFunction<T[Name]> };

const names = {
  void: 'void',
  bool: 'bool',
  u8: 'uint8_t',
  i32: 'int32_t',
  u32: 'uint32_t',
  i64: 'int64_t',
  u64: 'uint64_t',
  f32: 'float',
  f64: 'double',
  address: 'uintptr_t',
  buffer: 'void *',
  string: 'str',
} as const satisfies Readonly<Record<keyof Values, string>>;

/** The koffi type behind a NativeType. */
export function koffiType(type: NativeType): TypeObject {
  if (typeof type === 'string') return koffi.type(names[type]);
  return koffi.struct({ bytes: koffi.array('uint8_t', type.bytes, 'Typed') });
}
