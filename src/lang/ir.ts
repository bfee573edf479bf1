/**
 * The typed intermediate representation of a kernel. It is a structured tree, not a graph: both back ends (CUDA
 * C++ and the simulator's JavaScript) print it statement by statement, and a person can read it.
 *
 * Three rules keep the back ends simple:
 * 1. Expressions are pure. Everything that touches memory, other threads or time is an `Effect`, and an effect
 *    stands alone in an `effect` statement, which may bind its result to a fresh variable. The lowering hoists
 *    effects out of expressions in source order, so evaluation order is the same everywhere.
 * 2. Everything is specialised. `using` values are folded, dead branches are gone, `g.unroll` loops are unrolled
 *    and register arrays are indexed by constants only.
 * 3. Types are explicit on every expression, and both operands of an operation have the same type
 *    (except shifts, whose right operand is u32).
 */
import type { Field, IrType, Layout, ValueName } from './types.js';

/** A range in `IrModule.source.text`, resolved to a TypeScript file, line and column by `module.source`. */
export interface Span {
  readonly start: number;
  readonly end: number;
  /** Index into `IrModule.sources`: which function's text (the kernel's own is 0). */
  readonly source: number;
}

/** A variable. `id` is unique in the module; `name` is what the author wrote, for readable output. */
export interface Variable {
  readonly id: number;
  readonly name: string;
  readonly type: IrType;
  /** True where the author wrote `let` (or it is assigned again). */
  readonly mutable: boolean;
}

export type UnaryOp = '-' | '~' | '!';
export type BinaryOp =
  | '+'
  | '-'
  | '*'
  | '/'
  | '%'
  | '&'
  | '|'
  | '^'
  | '<<'
  | '>>'
  | '&&'
  | '||'
  | '=='
  | '!='
  | '<'
  | '<='
  | '>'
  | '>=';

/** Pure functions of values. `umulhi`-like extras are added here when a kernel needs them. */
export type PureFunction = 'min' | 'max' | 'abs' | 'popc' | 'ffs' | 'clz' | 'fma' | 'rcp';

export type Builtin =
  | 'threadIdx'
  | 'blockIdx'
  | 'blockDim'
  | 'gridDim'
  /** threadIdx % 32 and threadIdx / 32. */
  | 'laneId'
  | 'warpId'
  /** This rank in its node: an implicit launch argument, not a compile-time value (one cubin serves all ranks). */
  | 'rank';

/** Pure. The value depends only on variables, never on memory or on other threads. */
export type Expr =
  | { readonly kind: 'const'; readonly type: IrType; readonly value: number | bigint | boolean }
  | { readonly kind: 'variable'; readonly type: IrType; readonly variable: Variable }
  | { readonly kind: 'builtin'; readonly type: IrType; readonly name: Builtin }
  | { readonly kind: 'unary'; readonly type: IrType; readonly op: UnaryOp; readonly arg: Expr }
  | {
      readonly kind: 'binary';
      readonly type: IrType;
      readonly op: BinaryOp;
      readonly left: Expr;
      readonly right: Expr;
    }
  | {
      readonly kind: 'select';
      readonly type: IrType;
      readonly test: Expr;
      readonly then: Expr;
      readonly else: Expr;
    }
  | {
      readonly kind: 'pure';
      readonly type: IrType;
      readonly name: PureFunction;
      readonly args: readonly Expr[];
    }
  /** Converts a value as C does between integers; f32 → integer truncates and saturates; storage ↔ f32 rounds RNE
   *  (e4m3 saturates to ±448, NaN stays NaN). */
  | { readonly kind: 'convert'; readonly type: IrType; readonly arg: Expr }
  /** Same bits, other type: u32 ↔ f32 ↔ i32. */
  | { readonly kind: 'bits'; readonly type: IrType; readonly arg: Expr }
  /** Element `index` of a register array. */
  | { readonly kind: 'register'; readonly type: IrType; readonly array: Variable; readonly index: number }
  /** Lane `index` of a v16 seen as 16/size values of `type` (u32, f32, u64, bf16, f16, e4m3 …). */
  | { readonly kind: 'lane'; readonly type: IrType; readonly vector: Expr; readonly index: number }
  /** A v16 from 16/size values of one type. Values may be of the storage type, or f32/u32 where that converts. */
  | { readonly kind: 'pack'; readonly type: IrType; readonly of: ValueName; readonly lanes: readonly Expr[] }
  /** pointer + index · size of element. */
  | { readonly kind: 'offset'; readonly type: IrType; readonly pointer: Expr; readonly index: Expr }
  /** The same address seen as a pointer to another type. */
  | { readonly kind: 'view'; readonly type: IrType; readonly pointer: Expr }
  /** A field of `rank`'s window: base(window, rank) + field.offset. */
  | {
      readonly kind: 'field';
      readonly type: IrType;
      readonly window: Variable;
      readonly rank: Expr;
      readonly field: Field;
    };

/** `weak` is an ordinary access: it takes part in data races and orders nothing. */
export type Order = 'weak' | 'relaxed' | 'acquire' | 'release' | 'acq_rel';
export type Scope = 'cta' | 'gpu' | 'sys';
/** `stream`: read or written once, do not keep (CUDA: .L1::no_allocate / evict-first). `keep`: default. */
export type Cache = 'keep' | 'stream';

/** Everything that is not pure. `result` is the type of the variable it may bind ('void' if none). */
export type Effect =
  | {
      readonly op: 'load';
      readonly pointer: Expr;
      readonly order: 'weak' | 'relaxed' | 'acquire';
      readonly scope: Scope;
      readonly cache: Cache;
    }
  | {
      readonly op: 'store';
      readonly pointer: Expr;
      readonly value: Expr;
      readonly order: 'weak' | 'relaxed' | 'release';
      readonly scope: Scope;
      readonly cache: Cache;
    }
  | {
      readonly op: 'atomic';
      readonly name: 'add' | 'max' | 'or' | 'exchange';
      readonly pointer: Expr;
      readonly value: Expr;
      readonly order: 'relaxed' | 'acquire' | 'release' | 'acq_rel';
      readonly scope: Scope;
    }
  | {
      readonly op: 'compareExchange';
      readonly pointer: Expr;
      readonly compare: Expr;
      readonly value: Expr;
      readonly order: 'relaxed' | 'acquire' | 'release' | 'acq_rel';
      readonly scope: Scope;
    }
  | { readonly op: 'fence'; readonly order: 'acq_rel'; readonly scope: Scope }
  /**
   * Waits until the u32 at `pointer` has reached `epoch`, wrap-safely: (i32)(value − epoch) >= 0. Every poll is a
   * load of the given order. Result bool: false when `limit` (u32, microseconds; 0 = do not wait at all) ran out.
   */
  | {
      readonly op: 'awaitEpoch';
      readonly pointer: Expr;
      readonly epoch: Expr;
      readonly limit: Expr;
      readonly order: 'relaxed' | 'acquire';
      readonly scope: Scope;
    }
  /**
   * Waits until the last u32 lane of the v16 at `pointer` differs from `empty`. Every poll is one relaxed,
   * single-copy atomic 16-byte load, so the other 12 bytes are what was stored with it. Result v16; after the limit,
   * the last value read (whose last lane then still equals `empty`).
   */
  | {
      readonly op: 'awaitFilled';
      readonly pointer: Expr;
      readonly empty: Expr;
      readonly limit: Expr;
      readonly scope: Scope;
    }
  /** __syncthreads: every thread of the block, not under divergence. */
  | { readonly op: 'barrier' }
  /** __syncwarp(full). */
  | { readonly op: 'warpBarrier' }
  /** Warp operations: all 32 lanes take part. shuffle: value of lane `lane`; shuffleXor: of laneId ^ lane. */
  | {
      readonly op: 'shuffle' | 'shuffleXor' | 'shuffleUp' | 'shuffleDown';
      readonly value: Expr;
      readonly lane: Expr;
    }
  | { readonly op: 'ballot' | 'any' | 'all'; readonly value: Expr }
  /** Mask of the lanes whose value equals mine. */
  | { readonly op: 'match'; readonly value: Expr }
  /** True on exactly one lane (the lowest active). */
  | { readonly op: 'elect' }
  /** Nanoseconds of a clock that all GPUs of a node roughly share (%globaltimer). Result u64. */
  | { readonly op: 'clock' }
  | { readonly op: 'sleep'; readonly nanoseconds: Expr }
  /** Brings the line at `pointer`, in global memory, into L2: a hint, no access. */
  | { readonly op: 'prefetch'; readonly pointer: Expr }
  /** Programmatic dependent launch: wait until the previous kernel of the stream has finished (and is visible). */
  | { readonly op: 'awaitPrevious' }
  /** … and let the next one start early. It may not read our results before its own awaitPrevious. */
  | { readonly op: 'releaseNext' }
  /** Bulk asynchronous copies (TMA, cp.async.bulk); sizes and addresses are multiples of 16 bytes. */
  | {
      readonly op: 'bulkLoad';
      readonly to: Expr;
      readonly from: Expr;
      readonly bytes: Expr;
      readonly barrier: Expr;
    }
  | { readonly op: 'bulkStore'; readonly to: Expr; readonly from: Expr; readonly bytes: Expr }
  | { readonly op: 'bulkCommit' }
  /** Waits until at most `pending` of this thread's bulk-store groups are unfinished; `reads`: only until their
   *  shared-memory sources may be overwritten. */
  | { readonly op: 'bulkWait'; readonly pending: number; readonly reads: boolean }
  /** mbarriers are u64 elements of shared memory. init sets the number of arrivals; expect arrives and announces
   *  bytes; await waits for the phase of the given parity. */
  | { readonly op: 'mbarrierInit'; readonly barrier: Expr; readonly count: Expr }
  | { readonly op: 'mbarrierExpect'; readonly barrier: Expr; readonly bytes: Expr }
  | { readonly op: 'mbarrierAwait'; readonly barrier: Expr; readonly parity: Expr };

export type Stmt =
  /** Without `init`: the result of an inlined call, assigned once on every way through its block. */
  | { readonly kind: 'let'; readonly span: Span; readonly variable: Variable; readonly init: Expr | null }
  /** A register array, its elements starting as `fill`. */
  | { readonly kind: 'registers'; readonly span: Span; readonly variable: Variable; readonly fill: Expr }
  | { readonly kind: 'assign'; readonly span: Span; readonly variable: Variable; readonly value: Expr }
  | {
      readonly kind: 'assignRegister';
      readonly span: Span;
      readonly array: Variable;
      readonly index: number;
      readonly value: Expr;
    }
  | {
      readonly kind: 'effect';
      readonly span: Span;
      readonly effect: Effect;
      readonly result: Variable | null;
    }
  | {
      readonly kind: 'if';
      readonly span: Span;
      readonly test: Expr;
      readonly then: readonly Stmt[];
      readonly else: readonly Stmt[];
    }
  /** init; while (test) { body; update } — `continue` runs the update. All of them pure apart from the body. */
  | {
      readonly kind: 'for';
      readonly span: Span;
      readonly init: readonly Stmt[];
      readonly test: Expr;
      readonly update: readonly Stmt[];
      readonly body: readonly Stmt[];
    }
  | { readonly kind: 'while'; readonly span: Span; readonly test: Expr; readonly body: readonly Stmt[] }
  | { readonly kind: 'break' | 'continue'; readonly span: Span }
  | { readonly kind: 'return'; readonly span: Span }
  /** A scope of its own, with the author's names kept: an unrolled iteration, or (`call`) an inlined device function. */
  | {
      readonly kind: 'block';
      readonly span: Span;
      readonly body: readonly Stmt[];
      readonly call: InlinedCall | null;
    }
  /** Goes on behind the block of `call`: a device function that returns early. */
  | { readonly kind: 'leave'; readonly span: Span; readonly call: InlinedCall };

/** One call of a device function, told apart from others by identity. */
export interface InlinedCall {
  /** The function's name. */
  readonly name: string;
}

/** Memory shared by the threads of a block: static, laid out in declaration order, each 128-byte aligned if `v16`. */
export interface SharedArray {
  readonly variable: Variable;
  readonly length: number;
  readonly span: Span;
}

/** A kernel's run-time parameter, flattened: a list parameter `payloads` becomes payloads_0, payloads_1 … */
export interface Param {
  readonly variable: Variable;
  /** What the host passes under: `payloads` and 1 for payloads_1. */
  readonly name: string;
  readonly index: number | null;
}

export interface IrFunction {
  readonly name: string;
  readonly params: readonly Param[];
  readonly body: readonly Stmt[];
  readonly span: Span;
}

/** Text of one closed function and where it stands in a TypeScript file. */
export interface SourceText {
  readonly text: string;
  /** File as a person should see it (relative to the package where possible), or '' when unknown. */
  readonly file: string;
  /** Line and column (1-based) in that file of an offset in `text`. */
  position(offset: number): { readonly line: number; readonly column: number };
}

/** One kernel, specialised: what a device compiles. */
export interface IrModule {
  readonly name: string;
  /** The kernel, with its device functions inlined. */
  readonly entry: IrFunction;
  readonly shared: readonly SharedArray[];
  readonly layouts: readonly Layout[];
  readonly sources: readonly SourceText[];
  /** Most threads a block may be launched with: the printer's __launch_bounds__, the host's check. */
  readonly maxThreads: number;
  /** A short, stable text of the compile-time values, for messages and cache keys. */
  readonly specialization: string;
}
