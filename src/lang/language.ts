/**
 * Values of the kernel language as its authors see them: types that the editor checks. Nothing here runs: a body is
 * never called, its text is parsed (see kernel.ts).
 *
 * Scalars are ordinary numbers with a flavour, so `a + b` stays natural to write; passing a `u32` where an `i32`
 * is wanted is an error in the editor, and the language's own checker settles the width of every operation.
 */
import type { ComputeName, MemoryName, TensorRank, TileName } from './types.js';

export type { MemoryName } from './types.js';

declare const flavour: unique symbol;
type Flavour<T, N extends string> = T & { readonly [flavour]?: N };
/** Opaque: made and opened only by intrinsics. */
interface Opaque<N extends string> {
  readonly [flavour]: N;
}

export type i32 = Flavour<number, 'i32'>;
export type u32 = Flavour<number, 'u32'>;
export type u64 = Flavour<bigint, 'u64'>;
export type f32 = Flavour<number, 'f32'>;
export type bool = boolean;
export type bf16 = Opaque<'bf16'>;
export type f16 = Opaque<'f16'>;
export type e4m3 = Opaque<'e4m3'>;
export type v16 = Opaque<'v16'>;

/** The value of a type in registers. */
export interface ValueOf {
  i32: i32;
  u32: u32;
  u64: u64;
  f32: f32;
  bool: bool;
  u8: u32;
  u16: u32;
  bf16: bf16;
  f16: f16;
  e4m3: e4m3;
  v16: v16;
}

/** An address of elements of one type, in global (own or peer) or shared memory. */
export interface Pointer<T extends MemoryName> {
  readonly [flavour]: T;
  /** The address `index` elements further on. */
  at(index: u32 | i32): Pointer<T>;
  /** A pointer to elements of another type at this address. Alignment is the author's promise; the simulator checks it. */
  as<U extends MemoryName>(type: U): Pointer<U>;
}

type Index = u32 | i32;

/** Tiles in shared memory, one behind the other. */
export interface Tiles<T extends TileName> {
  readonly [flavour]: `tiles of ${T}`;
  /** The tile `index` tiles further on. */
  at(index: Index): Tiles<T>;
  /** Element (row, column) of the first one, wherever the swizzle puts it. */
  element(row: Index, column: Index): Pointer<T>;
  /** `count` of its rows (a constant), from row `first` on, as a tile: both are multiples of 8. */
  rows(first: Index, count: number): Tiles<T>;
  /** Its bytes as they lie. */
  as<U extends MemoryName>(type: U): Pointer<U>;
}

/** A tensor as the copy engine knows it. */
export interface TensorMap<T extends TileName, R extends TensorRank> {
  readonly [flavour]: `tensor of ${T}`;
  readonly rank: R;
}

/**
 * A field of several dimensions, or what is left of one where the first are indexed. It is also a pointer to its
 * first element. In the simulator's checked mode an index outside its dimension is a finding.
 */
export type View<T extends MemoryName, S extends readonly number[]> = S['length'] extends keyof Views<T>
  ? Views<T>[S['length']]
  : AnyView<T>;
interface Views<T extends MemoryName> {
  1: Pointer<T>;
  2: View2<T>;
  3: View3<T>;
  4: View4<T>;
}
interface View2<T extends MemoryName> extends Pointer<T> {
  at(row: Index): Pointer<T>;
  at(row: Index, element: Index): Pointer<T>;
  /** These rows, seen as rows of elements of another type. */
  as<U extends MemoryName>(type: U): View2<U>;
}
interface View3<T extends MemoryName> extends Pointer<T> {
  at(i: Index): View2<T>;
  at(i: Index, row: Index): Pointer<T>;
  at(i: Index, row: Index, element: Index): Pointer<T>;
  as<U extends MemoryName>(type: U): View3<U>;
}
interface View4<T extends MemoryName> extends Pointer<T> {
  at(i: Index): View3<T>;
  at(i: Index, j: Index): View2<T>;
  at(i: Index, j: Index, row: Index): Pointer<T>;
  at(i: Index, j: Index, row: Index, element: Index): Pointer<T>;
  as<U extends MemoryName>(type: U): View4<U>;
}
/** A field whose number of dimensions only the compiler knows, not the editor. */
interface AnyView<T extends MemoryName> extends Pointer<T> {
  at(...indices: Index[]): AnyView<T>;
  as<U extends MemoryName>(type: U): AnyView<U>;
}

/** The elements of a register array. Those of `u8` and `u16` hold a u32, as a load gives it. */
export type RegisterName = ComputeName | 'u8' | 'u16' | 'v16';

/** Registers of a thread. Indices must be constants once `g.unroll` loops are unrolled. */
export interface Registers<T extends RegisterName> {
  [index: number]: ValueOf[T];
  readonly length: number;
}
