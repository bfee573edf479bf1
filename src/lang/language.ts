/**
 * The kernel language as its authors see it: the types that the editor checks, and `Gpu`, the `g` that every
 * body receives. Nothing here runs: a body is never called, its text is parsed (see kernel.ts).
 *
 * Scalars are ordinary numbers with a flavour, so `a + b` stays natural to write; passing a `u32` where an `i32`
 * is wanted is an error in the editor, and the language's own checker settles the width of every operation.
 */
import type { Cache, FenceOrder, Scope } from './ir.js';
import type { ComputeName, ValueName } from './types.js';

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

export type MemoryName = Exclude<ValueName, 'bool'>;

/** An address of elements of one type, in global (own or peer) or shared memory. */
export interface Pointer<T extends MemoryName> {
  readonly [flavour]: T;
  /** The address `index` elements further on. */
  at(index: u32 | i32): Pointer<T>;
  /** The same address, seen as elements of another type. Alignment is the author's promise; the simulator checks it. */
  as<U extends MemoryName>(type: U): Pointer<U>;
}

type Index = u32 | i32;

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
  /** The same rows, seen as rows of elements of another type. */
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
/** Where the editor does not know how many dimensions there are; the compiler does. */
interface AnyView<T extends MemoryName> extends Pointer<T> {
  at(...indices: Index[]): AnyView<T>;
  as<U extends MemoryName>(type: U): AnyView<U>;
}

/** What a register array may hold. */
export type RegisterName = ComputeName | 'u8' | 'u16' | 'v16';

/** Registers of a thread. Indices must be constants once `g.unroll` loops are unrolled. */
export interface Registers<T extends RegisterName> {
  [index: number]: ValueOf[T];
  readonly length: number;
}

interface LoadOptions {
  readonly order?: 'weak' | 'relaxed' | 'acquire';
  readonly scope?: Scope;
  readonly cache?: Cache;
}
interface StoreOptions {
  readonly order?: 'weak' | 'relaxed' | 'release';
  readonly scope?: Scope;
  readonly cache?: Cache;
}
interface AtomicOptions {
  readonly order: 'relaxed' | 'acquire' | 'release' | 'acq_rel';
  readonly scope: Scope;
}
interface WaitOptions {
  readonly order: 'relaxed' | 'acquire';
  readonly scope: Scope;
  /** Microseconds after which the wait gives up. */
  readonly limit: u32;
}

type Integer = i32 | u32 | u64;

/** What a kernel's thread can do. See docs/language.md for the page that a person reads. */
export interface Gpu {
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
  /** The same conversions, where the type is a compile-time value: `g.convert(DTYPE, x)`. */
  convert<T extends 'f32' | 'bf16' | 'f16' | 'e4m3'>(type: T, value: number | bf16 | f16 | e4m3): ValueOf[T];
  /** The same 32 bits as another type. */
  bits<T extends 'i32' | 'u32' | 'f32'>(type: T, value: i32 | u32 | f32): ValueOf[T];

  min<T extends Integer | f32>(a: T, b: T): T;
  max<T extends Integer | f32>(a: T, b: T): T;
  /** a · b + c with one rounding. */
  fma(a: f32, b: f32, c: f32): f32;
  /** 1 / a, correctly rounded. */
  rcp(a: f32): f32;
  popc(a: u32): u32;
  /** 1 + index of the lowest set bit; 0 if none. */
  ffs(a: u32): u32;
  select<T>(test: bool, then: T, otherwise: T): T;

  /** Lane `index` (a constant) of a vector seen as 16/size values of `type`. */
  lane<T extends Exclude<MemoryName, 'v16'>>(vector: v16, type: T, index: number): ValueOf[T];
  /** A vector from 16/size values: an array literal, or a register array (f32 registers convert to `type`). */
  pack<T extends Exclude<MemoryName, 'v16'>>(
    type: T,
    lanes: readonly ValueOf[T][] | Registers<'f32'> | Registers<'u32'>,
  ): v16;
  /** `length` registers of this thread, starting as `fill` (default 0; vectors: zeros). `u8` and `u16` are held as u32. */
  registers<T extends RegisterName>(type: T, length: number, fill?: ValueOf[T]): Registers<T>;
  /** Memory shared by the block's threads, uninitialised. Declared by a `const`, wherever it reads best. */
  shared<T extends MemoryName>(type: T, length: number): Pointer<T>;
  /** `for (const i of g.unroll(n))`: the body once per i, which is then a compile-time constant. */
  unroll(count: number): Iterable<number>;

  load<T extends MemoryName>(pointer: Pointer<T>, options?: LoadOptions): ValueOf[T];
  store<T extends MemoryName>(pointer: Pointer<T>, value: ValueOf[T], options?: StoreOptions): void;
  /**
   * Asks for the cache line there to be brought into L2. It reads nothing: it needs no order, and comes to nothing
   * worse than a wasted fetch where it is too early.
   */
  prefetch<T extends MemoryName>(pointer: Pointer<T>): void;
  /** The bytes from one address to another of the same memory, to which `to` comes no earlier: a place in a window, say. */
  distance<T extends MemoryName, U extends MemoryName>(to: Pointer<T>, from: Pointer<U>): u32;
  /** Returns the value before. */
  atomicAdd<T extends 'i32' | 'u32' | 'u64'>(
    pointer: Pointer<T>,
    value: ValueOf[T],
    options: AtomicOptions,
  ): ValueOf[T];
  /**
   * Orders this thread's earlier accesses before its later ones for observers in `scope`. `seq_cst` fences also stand
   * in one order: of two threads that store, fence and load, at least one sees what the other stored.
   */
  fence(scope: Scope, options?: { readonly order: FenceOrder }): void;

  /**
   * Waits until the u32 there, or the lower half of the u64, has reached `epoch` (wrap-safe); or equals it, or differs
   * from it; or those of its bits that `mask` has. False when the limit ran out.
   */
  awaitEpoch(
    pointer: Pointer<'u32'> | Pointer<'u64'>,
    epoch: u32,
    options: WaitOptions & { readonly until?: '>=' | '==' | '!='; readonly mask?: u32 },
  ): bool;
  /** Waits until the last u32 of the 16 bytes there differs from `empty`; single-copy atomic, relaxed. */
  awaitFilled(
    pointer: Pointer<'v16'>,
    empty: u32,
    options: { readonly scope: Scope; readonly limit: u32 },
  ): v16;

  /** All threads of the block meet; orders their accesses at block scope. Never under divergence. */
  barrier(): void;
  /** Some warps of a block, which have a part of their own in it. */
  readonly group: {
    /** The block's barrier `id` (1 to 15; 0 is `g.barrier`) for as many threads, a multiple of 32, as come to it. */
    barrier(id: u32, threads: u32): void;
  };
  readonly warp: {
    /** The 32 lanes meet; orders their accesses among themselves. */
    barrier(): void;
    shuffle<T extends i32 | u32 | f32>(value: T, lane: u32): T;
    shuffleXor<T extends i32 | u32 | f32>(value: T, mask: u32): T;
    shuffleUp<T extends i32 | u32 | f32>(value: T, by: u32): T;
    /** Bit i: lane i said true. */
    ballot(test: bool): u32;
    any(test: bool): bool;
    /** Mask of the lanes that hold the same value. */
    match(value: i32 | u32): u32;
    /**
     * Four 8×8 matrices of 16-bit elements from shared memory: lane 8 · m + r names row r of matrix m, and gets, as
     * word m, elements 2 · (lane % 4) and the next of row lane / 4.
     */
    ldmatrix(row: Pointer<'v16'>): v16;
    /**
     * a · bᵀ + sum on the tensor cores: a is 16×16 bf16, b one `half` (a constant, 0 or 1) of 16×16, sum and result are
     * 16×8 f32. Each v16 is one lane's part.
     */
    mma(a: v16, b: v16, half: number, sum: v16): v16;
  };

  /** Nanoseconds (%globaltimer). */
  clock(): u64;
  sleep(nanoseconds: u32): void;
  /** Programmatic dependent launch: wait for the previous kernel of this stream to finish. */
  awaitPrevious(): void;
  /** … and allow the next one to start. */
  releaseNext(): void;

  /** Asynchronous copies of 16 bytes from global to shared memory, in groups. */
  readonly async: {
    load(to: Pointer<'v16'>, from: Pointer<'v16'>): void;
    /** What this thread has loaded since the last commit is a group. */
    commit(): void;
    /** Until at most `pending` groups of this thread are unfinished. Others see what came behind a barrier. */
    wait(pending: number): void;
  };
  /** Bulk asynchronous copies by one thread (TMA); addresses and sizes are multiples of 16 bytes. */
  readonly bulk: {
    load(to: Pointer<'v16'>, from: Pointer<'v16'>, bytes: u32, mbarrier: Pointer<'u64'>): void;
    store(to: Pointer<'v16'>, from: Pointer<'v16'>, bytes: u32): void;
    commit(): void;
    /** Until at most `pending` groups of this thread are unfinished (complete and visible to it). */
    wait(pending: number): void;
    /** … until their shared-memory sources may be overwritten. */
    waitReads(pending: number): void;
  };
  readonly mbarrier: {
    init(barrier: Pointer<'u64'>, count: u32): void;
    expect(barrier: Pointer<'u64'>, bytes: u32): void;
    arrive(barrier: Pointer<'u64'>): void;
    /** Until the phase of that parity is over; false where a limit (microseconds) ran out before. */
    await(barrier: Pointer<'u64'>, parity: u32, options?: { readonly limit: u32 }): bool;
  };
}

/** What the twin of a foreign function can do besides: what networks do beside the thread that asks them. */
export interface TwinGpu extends Gpu {
  readonly network: {
    /**
     * Sends bytes to another rank. They are read from now on, as late as may be, and land in any order: until whoever
     * acquires a release signal behind them says so, the source may not be written again.
     */
    put(to: Pointer<'u8'>, from: Pointer<'u8'>, bytes: u32): void;
    /**
     * Sets, or adds to, a word of another rank, later. As a release it comes behind all that was put there before, by this
     * thread or by threads of this rank that it has met, and behind whatever else happened before.
     */
    signal(
      pointer: Pointer<'u64'>,
      value: u64,
      how: 'set' | 'add',
      options: { readonly order: 'relaxed' | 'release'; readonly scope: Scope },
    ): void;
  };
}
