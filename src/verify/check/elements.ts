/** Values as C++ has them in memory: elements of buffers, and structs. */
import {
  ArgumentError,
  requireInteger,
  requireObject,
  requireOneOf,
  requireThat,
} from '../../base/errors.js';
import { bf16ToF32, e4m3ToF32, f16ToF32, f32ToBf16, f32ToE4m3, f32ToF16 } from '../../gpu/index.js';

interface Codec {
  readonly bytes: number;
  get(view: DataView, at: number): number;
  set(view: DataView, at: number, value: number | bigint): void;
}

/** A number of `DataView`, by the name of its methods. */
function plain(
  name: 'Uint8' | 'Int8' | 'Uint16' | 'Int16' | 'Uint32' | 'Int32' | 'Float32' | 'Float64',
): Codec {
  return {
    bytes: Number.parseInt(name.replace(/\D+/, ''), 10) / 8,
    get: (view, at) => view[`get${name}`](at, true),
    set: (view, at, value) => view[`set${name}`](at, Number(value), true),
  };
}

function wide(name: 'BigUint64' | 'BigInt64'): Codec {
  return {
    bytes: 8,
    get: (view, at) => Number(view[`get${name}`](at, true)),
    set: (view, at, value) => view[`set${name}`](at, BigInt(value), true),
  };
}

/** A float of `bits`, which `toF32` and `fromF32` turn into a number and back. */
const small = (bits: Codec, toF32: (bits: number) => number, fromF32: (value: number) => number): Codec => ({
  bytes: bits.bytes,
  get: (view, at) => toF32(bits.get(view, at)),
  set: (view, at, value) => bits.set(view, at, fromF32(Number(value))),
});

const codecs = {
  ...{ u8: plain('Uint8'), i8: plain('Int8'), u16: plain('Uint16'), i16: plain('Int16') },
  ...{ u32: plain('Uint32'), i32: plain('Int32'), u64: wide('BigUint64'), i64: wide('BigInt64') },
  ...{ f32: plain('Float32'), f64: plain('Float64'), pointer: wide('BigUint64') },
  f16: small(plain('Uint16'), f16ToF32, f32ToF16),
  bf16: small(plain('Uint16'), bf16ToF32, f32ToBf16),
  e4m3: small(plain('Uint8'), e4m3ToF32, f32ToE4m3),
} satisfies Readonly<Record<string, Codec>>;

export type ElementType = keyof typeof codecs;

export function bytesOf(type: ElementType): number {
  return codecs[requireOneOf('type', type, Object.keys(codecs) as ElementType[])].bytes;
}

export function encode(type: ElementType, values: readonly (number | bigint)[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(bytesOf(type) * values.length));
  for (const [i, value] of values.entries()) codecs[type].set(view, i * codecs[type].bytes, value);
  return new Uint8Array(view.buffer);
}

export function decode(type: ElementType, bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const size = bytesOf(type);
  return Array.from({ length: bytes.length / size }, (_, i) => codecs[type].get(view, i * size));
}

/** A field's type: an element's, a struct, or so many of one of them. */
export type FieldType =
  | ElementType
  | Struct<Fields>
  | readonly [of: ElementType | Struct<Fields>, count: number];
export type Fields = Readonly<Record<string, FieldType>>;

/** Something with an address: its pointer is that. */
export interface Addressed {
  readonly address: number;
}

type One<F> = F extends 'pointer'
  ? number | bigint | Addressed
  : F extends ElementType
    ? number | bigint
    : F extends Struct<infer Inner>
      ? StructValues<Inner>
      : never;
/** The values of a struct's fields. What is left out is zeros. */
export type StructValues<F extends Fields> = {
  readonly [Name in keyof F]?: F[Name] extends readonly [infer Each, number]
    ? readonly One<Each>[]
    : One<F[Name]>;
};

/** A struct of C++: where its fields lie, and its bytes with given values. */
export interface Struct<F extends Fields> {
  readonly bytes: number;
  readonly align: number;
  /** The byte at which each field begins. */
  readonly offsets: Readonly<Record<keyof F, number>>;
  /** Its bytes: a value for launches. */
  of(values: StructValues<F>): Uint8Array;
}

/**
 * Declares a struct as C++ does, its fields in their order: `struct({ rows: ['pointer', 8], count: 'u32' })`. `align` is that of an
 * `alignas`.
 */
export function struct<const F extends Fields>(
  fields: F,
  options: { readonly align?: number } = {},
): Struct<F> {
  requireObject('fields', fields, 'the fields of a struct, by name');
  requireObject('options', options);
  const align = requireInteger('align', options.align ?? 1, 1, 4096);
  const offsets: Record<string, number> = {};
  let [end, widest] = [0, align];
  for (const [name, type] of Object.entries(fields)) {
    const { bytes, align: own, count } = placed(name, type);
    offsets[name] = upTo(own, end);
    end = offsets[name] + bytes * (count ?? 1);
    widest = Math.max(widest, own);
  }
  const made: Struct<F> = {
    ...{ bytes: upTo(widest, end), align: widest, offsets: offsets as Record<keyof F, number> },
    of(values) {
      requireObject('values', values, 'the values of fields, by name');
      const all = new Uint8Array(made.bytes);
      for (const [name, value] of Object.entries(values)) {
        const type = fields[name];
        if (type === undefined)
          throw new ArgumentError(name, value, `a field: ${Object.keys(fields).join(', ')}`);
        const { of, bytes, count } = placed(name, type);
        const list: readonly unknown[] = Array.isArray(value) ? value : [value];
        if (count === null ? Array.isArray(value) : list.length > count)
          throw new ArgumentError(name, value, count === null ? 'one value' : `at most ${count} values`);
        for (const [i, one] of list.entries()) all.set(bytesOfOne(name, of, one), offsets[name]! + i * bytes);
      }
      return all;
    },
  };
  structs.add(made);
  return made;
}

const upTo = (align: number, at: number): number => Math.ceil(at / align) * align;

/** What a field is made of, and how many of them; null where it is no array. */
function placed(name: string, type: FieldType) {
  const [of, count] = (Array.isArray(type) ? type : [type, null]) as [
    ElementType | Struct<Fields>,
    number | null,
  ];
  if (count !== null) requireInteger(`${name}[1]`, count, 1, 2 ** 20);
  if (typeof of === 'string') return { of, bytes: bytesOf(of), align: bytesOf(of), count };
  requireMade(name, of);
  return { of, bytes: of.bytes, align: of.align, count };
}

const structs = new WeakSet<object>();

function requireMade(name: string, value: unknown): void {
  const known = `${Object.keys(codecs).join(', ')}, what struct() makes, or [one of them, how many]`;
  requireThat(typeof value === 'object' && value !== null && structs.has(value), name, value, known);
}

function bytesOfOne(name: string, type: ElementType | Struct<Fields>, value: unknown): Uint8Array {
  if (typeof type === 'object') return type.of(value as StructValues<Fields>);
  return encode(type, [numberOf(name, value)]);
}

export function numberOf(name: string, value: unknown): number | bigint {
  if (typeof value === 'number' || typeof value === 'bigint') return value;
  const address = typeof value === 'object' ? (value as Partial<Addressed> | null)?.address : undefined;
  if (typeof address === 'number') return address;
  throw new ArgumentError(name, value, 'a number, or memory');
}
