/**
 * `Gpu`, the `g` that every body receives: here what belongs to the language itself, and with it the operations, each of
 * which says itself how it is called.
 */
import type {
  bf16,
  bool,
  e4m3,
  f16,
  f32,
  i32,
  MemoryName,
  Pointer,
  RegisterName,
  Registers,
  Tiles,
  u32,
  u64,
  ValueOf,
  v16,
} from './language.js';
import type { KernelFunctions, TwinFunctions } from './operations/index.js';
import type { Tile, TileName } from './types.js';

/** The operations of a kernel's thread. See docs/language.md for the page that a person reads. */
export interface Gpu extends KernelFunctions {
  readonly threadIdx: { readonly x: u32 };
  readonly blockIdx: { readonly x: u32 };
  readonly blockDim: { readonly x: u32 };
  readonly gridDim: { readonly x: u32 };
  /** threadIdx.x % 32 */
  readonly laneId: u32;
  /** threadIdx.x / 32 */
  readonly warpId: u32;
  /** This rank, counted as the kernel's windows are: `win.at(g.rank)` is its own. */
  readonly rank: u32;

  // Conversions. Integers convert as in C; f32 → integer truncates and saturates; to a storage type rounds to nearest even.
  i32(value: number | bigint | boolean): i32;
  u32(value: number | bigint | boolean): u32;
  u64(value: number | bigint): u64;
  f32(value: number | bf16 | f16 | e4m3): f32;
  bf16(value: f32): bf16;
  f16(value: f32): f16;
  e4m3(value: f32): e4m3;
  /** Converts to a type that is a compile-time value: `g.convert(DTYPE, x)`. */
  convert<T extends 'f32' | 'bf16' | 'f16' | 'e4m3'>(type: T, value: number | bf16 | f16 | e4m3): ValueOf[T];
  /** Reads the 32 bits of a value as another type. */
  bits<T extends 'i32' | 'u32' | 'f32'>(type: T, value: i32 | u32 | f32): ValueOf[T];

  select<T>(test: bool, then: T, otherwise: T): T;

  /** Lane `index` (a constant) of a vector seen as 16/size values of `type`. */
  lane<T extends Exclude<MemoryName, 'v16'>>(vector: v16, type: T, index: number): ValueOf[T];
  /** A vector from 16/size values: an array literal, or a register array (f32 registers convert to `type`). */
  pack<T extends Exclude<MemoryName, 'v16'>>(
    type: T,
    lanes: readonly ValueOf[T][] | Registers<'f32'> | Registers<'u32'>,
  ): v16;
  /** 32 bits from two or four f32, each rounded to nearest even: what threads that hold neighbours of a sum store. */
  word(type: 'bf16' | 'f16', lanes: readonly [low: f32, high: f32]): u32;
  word(type: 'e4m3', lanes: readonly [f32, f32, f32, f32]): u32;
  /** `length` registers of this thread, starting as `fill` (default 0; vectors: zeros). `u8` and `u16` are held as u32. */
  registers<T extends RegisterName>(type: T, length: number, fill?: ValueOf[T]): Registers<T>;
  /** Memory shared by the block's threads, uninitialised. Declared by a `const`, wherever it reads best. */
  shared<T extends MemoryName>(type: T, length: number): Pointer<T>;
  /** Tiles in such memory: one, or `count` one behind the other. */
  shared<T extends TileName>(of: Tile<T>, count?: number): Tiles<T>;
  /** `for (const i of g.unroll(n))`: the body once per i, which is then a compile-time constant. */
  unroll(count: number): Iterable<number>;
}

/** Operations that only the twin of a foreign function has: what networks do beside the thread that asks them. */
export interface TwinGpu extends Gpu, TwinFunctions {}
