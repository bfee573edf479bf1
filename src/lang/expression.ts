/** The expressions of the IR, and the words that accesses of memory are described with. */
import type { BinaryOp, UnaryOp } from './arithmetic.js';
import type { PureFunction } from './operations/pure.js';
import type { Field, IrType, ValueName } from './types.js';

/** A variable. `id` is unique in the module; `name` is what the author wrote, for readable output. */
export interface Variable {
  readonly id: number;
  readonly name: string;
  readonly type: IrType;
  /** True where the author wrote `let` (or it is assigned again). */
  readonly mutable: boolean;
  /** The author has no name for it, so a printer may do without: an effect's result inside an expression, a rank. */
  readonly unnamed?: true;
}

export type Builtin =
  | 'threadIdx'
  | 'blockIdx'
  | 'blockDim'
  | 'gridDim'
  /** threadIdx % 32 and threadIdx / 32. */
  | 'laneId'
  | 'warpId'
  /** This rank, counted as the windows are: an implicit launch argument, not a compile-time value (one cubin serves all ranks). */
  | 'rank';

/** Every kind of expression, and what it has besides its type. */
interface Expressions {
  const: { readonly value: number | bigint | boolean };
  variable: { readonly variable: Variable };
  builtin: { readonly name: Builtin };
  unary: { readonly op: UnaryOp; readonly arg: Expr };
  binary: { readonly op: BinaryOp; readonly left: Expr; readonly right: Expr };
  select: { readonly test: Expr; readonly then: Expr; readonly else: Expr };
  pure: { readonly name: PureFunction; readonly args: readonly Expr[] };
  /** Converts a value as C does between integers; f32 → integer truncates and saturates; storage ↔ f32 rounds RNE
   *  (e4m3 saturates to ±448, NaN stays NaN). */
  convert: { readonly arg: Expr };
  /** Same bits, other type: u32 ↔ f32 ↔ i32. */
  bits: { readonly arg: Expr };
  register: { readonly array: Variable; readonly index: number };
  /** All of a register array, as an operation takes it that reads and writes it. */
  array: { readonly array: Variable };
  /** Lane `index` of a v16 seen as 16/size values of `type` (u32, f32, u64, bf16, f16, e4m3 …). */
  lane: { readonly vector: Expr; readonly index: number };
  /** A v16, or a u32, from as many values of one type as fill it. Values may be of the storage type, or f32/u32 where that converts. */
  pack: { readonly of: ValueName; readonly lanes: readonly Expr[] };
  /** pointer + index · size of element. */
  offset: { readonly pointer: Expr; readonly index: Expr };
  /**
   * The index of an `offset` into a field of several dimensions. Its value is `value`; the checked simulator compares `indices` with
   * `extents`, those of the dimensions that they index.
   */
  index: {
    readonly value: Expr;
    readonly indices: readonly Expr[];
    readonly extents: readonly number[];
    readonly of: Shaped;
  };
  /** A pointer to another type at the address of a pointer. */
  view: { readonly pointer: Expr };
  /** A field of `rank`'s window: base(window, rank) + field.offset. */
  field: { readonly window: Variable; readonly rank: Expr; readonly field: Field };
}

/** Pure. The value depends only on variables, never on memory or on other threads. */
export type Expr = {
  [K in keyof Expressions]: { readonly kind: K; readonly type: IrType } & Expressions[K];
}[keyof Expressions];

/** The name of the dimension that an index out of bounds counts. */
export interface Shaped {
  readonly layout: string;
  readonly field: Field;
  /** Dimensions that were indexed before. */
  readonly before: number;
}

/** `weak` is an ordinary access: it takes part in data races and orders nothing. */
export type Order = 'weak' | 'relaxed' | 'acquire' | 'release' | 'acq_rel';
export type FenceOrder = 'acq_rel' | 'seq_cst';
export type Scope = 'cta' | 'gpu' | 'sys';
/** `stream`: read or written once, do not keep (CUDA: .L1::no_allocate / evict-first). `keep`: default. */
export type Cache = 'keep' | 'stream';
