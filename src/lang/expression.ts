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
  /** All of a register array, as an operation takes it that reads and writes it. */
  | { readonly kind: 'array'; readonly type: IrType; readonly array: Variable }
  /** Lane `index` of a v16 seen as 16/size values of `type` (u32, f32, u64, bf16, f16, e4m3 …). */
  | { readonly kind: 'lane'; readonly type: IrType; readonly vector: Expr; readonly index: number }
  /** A v16, or a u32, from as many values of one type as fill it. Values may be of the storage type, or f32/u32 where that converts. */
  | { readonly kind: 'pack'; readonly type: IrType; readonly of: ValueName; readonly lanes: readonly Expr[] }
  /** pointer + index · size of element. */
  | { readonly kind: 'offset'; readonly type: IrType; readonly pointer: Expr; readonly index: Expr }
  /** The index of an `offset` into a field of several dimensions. Its value is `value`; the checked simulator compares `indices` with `extents`. */
  | {
      readonly kind: 'index';
      readonly type: IrType;
      readonly value: Expr;
      readonly indices: readonly Expr[];
      /** Of the dimensions that `indices` index. */
      readonly extents: readonly number[];
      readonly of: Shaped;
    }
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
