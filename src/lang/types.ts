/**
 * The types of the kernel language, as values: `u32`, `pointer(v16)`, `peers(layout)`. A kernel's header names
 * them, so that both the editor and the language's checker know every width before the body is read.
 */

/** Scalars that can be computed with. `i32`/`u32`/`u64` wrap; `f32` rounds to nearest even at every step. */
export type ComputeName = 'i32' | 'u32' | 'u64' | 'f32' | 'bool';

/**
 * Scalars that only live in memory and in lanes. `u8` and `u16` load as `u32` and store truncated; `bf16`, `f16`
 * and `e4m3` are opaque until converted with `g.f32(x)` and made with `g.bf16(x)`, `g.f16(x)`, `g.e4m3(x)`.
 */
type StorageName = 'u8' | 'u16' | 'bf16' | 'f16' | 'e4m3';

/** `v16` is 16 opaque bytes: the widest access of a thread. `g.lane` and `g.pack` open and close it. */
export type ValueName = ComputeName | StorageName | 'v16';

/** The types of what lies in memory: a bool is in registers only. */
export type MemoryName = Exclude<ValueName, 'bool'>;

/** The size of a value in memory, in bytes. Its natural alignment is the same. */
export const byteSize: Readonly<Record<MemoryName, number>> = {
  u8: 1,
  u16: 2,
  i32: 4,
  u32: 4,
  u64: 8,
  f32: 4,
  bf16: 2,
  f16: 2,
  e4m3: 1,
  v16: 16,
};

/** The place of memory. `global` is a device's own or a peer's memory; `shared` belongs to one block. */
export type Space = 'global' | 'shared';

export type IrType =
  | { readonly kind: 'value'; readonly name: ValueName }
  /** `tile`: to tiles, one behind the other; indices are still those of elements. */
  | {
      readonly kind: 'pointer';
      readonly to: MemoryName;
      readonly space: Space;
      readonly tile?: Tile;
    }
  /** A fixed array in registers: indices must be constants after unrolling. */
  | { readonly kind: 'registers'; readonly of: ComputeName | 'v16'; readonly length: number }
  /** The windows of all ranks of the node, one layout: `win.at(rank).field`. */
  | { readonly kind: 'peers'; readonly layout: Layout }
  /** A tensor in global memory, as the copy engine (TMA) needs it described: boxes of it are tiles. */
  | { readonly kind: 'tensorMap'; readonly tile: Tile; readonly rank: TensorRank }
  | { readonly kind: 'void' };

export type TileName = Exclude<ValueName, 'bool' | 'v16'>;
/** Bytes in which the 16-byte pieces of a tile's rows change places; 0: they lie as they are. */
export type Swizzle = 0 | 32 | 64 | 128;
export type TensorRank = 2 | 3;

/** The layout of a matrix in shared memory. Made by `tile()`, then used by the host, kernels and the simulator alike. */
export interface Tile<T extends TileName = TileName> {
  readonly heddle: 'tile';
  readonly type: T;
  readonly rows: number;
  readonly columns: number;
  readonly swizzle: Swizzle;
  /** The size of the whole, a multiple of its alignment: tiles stand one behind the other. */
  readonly bytes: number;
  /** The alignment of its first byte in shared memory. */
  readonly alignment: number;
}

/** One section of a window or of a rank's own state. Offsets are in bytes from the start. */
export interface Field {
  readonly name: string;
  readonly type: MemoryName;
  /** Number of elements: the product of the extents of `shape`. */
  readonly length: number;
  /** Row-major: the last index moves by one element. */
  readonly shape: readonly number[];
  /** The names of the dimensions in findings; empty where nobody said. */
  readonly dimensions: readonly string[];
  readonly offset: number;
}

/**
 * Where everything lies in a window. Made once by `layout()`, then used by the host, the kernels and the
 * checker's reports alike (law 5: offsets exist once).
 */
export interface Layout {
  readonly name: string;
  readonly fields: readonly Field[];
  /** Total size, a multiple of `alignment`. */
  readonly bytes: number;
}

/** Sections start on a cache line of their own, so that flags of different peers never share one by accident. */
export const sectionAlignment = 128;
