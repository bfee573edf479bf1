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

import type { Expr, Variable } from './expression.js';
import type { OperationEffect } from './operations/index.js';
import type { IrType, Layout } from './types.js';

export type { BinaryOp, UnaryOp } from './arithmetic.js';
export type * from './expression.js';
export type { PureFunction } from './operations/pure.js';

/** A range in `IrModule.source.text`, resolved to a TypeScript file, line and column by `module.source`. */
export interface Span {
  readonly start: number;
  readonly end: number;
  /** Index into `IrModule.sources`: which function's text (the kernel's own is 0). */
  readonly source: number;
}

/** Everything that is not pure: an operation of `g` (see operations/). */
export type Effect = OperationEffect;

/** Every kind of statement, and what it has besides its span. */
interface Statements {
  /** A declaration. Without `init` it is the result of an inlined call, assigned once on every way through its block. */
  let: { readonly variable: Variable; readonly init: Expr | null };
  /** A register array, its elements starting as `fill`. */
  registers: { readonly variable: Variable; readonly fill: Expr };
  assign: { readonly variable: Variable; readonly value: Expr };
  assignRegister: { readonly array: Variable; readonly index: number; readonly value: Expr };
  effect: { readonly effect: Effect; readonly result: Variable | null };
  if: { readonly test: Expr; readonly then: readonly Stmt[]; readonly else: readonly Stmt[] };
  /** init; while (test) { body; update } — `continue` runs the update. All of them pure apart from the body. */
  for: {
    readonly init: readonly Stmt[];
    readonly test: Expr;
    readonly update: readonly Stmt[];
    readonly body: readonly Stmt[];
  };
  while: { readonly test: Expr; readonly body: readonly Stmt[] };
  break: unknown;
  continue: unknown;
  return: unknown;
  /**
   * A scope of its own, with the author's names kept: an unrolled iteration, or (`call`) an inlined device function. The
   * `let`s of its arguments have its span.
   */
  block: { readonly body: readonly Stmt[]; readonly call: InlinedCall | null };
  /** Goes on behind the block of `call`: a device function that returns early. */
  leave: { readonly call: InlinedCall };
  /**
   * A call of a foreign function. `twin` does the same, and assigns `result`: it runs wherever no CUDA is printed, and
   * is what checks and mutants look at.
   */
  foreign: {
    readonly callee: ForeignFunction;
    readonly args: readonly Expr[];
    readonly result: Variable | null;
    readonly twin: readonly Stmt[];
  };
}
export type Stmt = {
  [K in keyof Statements]: { readonly kind: K; readonly span: Span } & Statements[K];
}[keyof Statements];

export interface ForeignFunction {
  readonly name: string;
  /** The CUDA header that declares the function; without one the printer declares it. */
  readonly header: string | undefined;
  /** The CUDA source that defines the function and is linked to the kernel; without one the header defines it. */
  readonly source: ForeignSource | undefined;
  readonly returns: IrType;
}

/** One call of a device function, told apart from others by identity. */
export interface InlinedCall {
  readonly name: string;
}

/** Memory shared by the threads of a block: laid out in declaration order, each aligned as its elements, or tiles, need. `length` counts elements. */
export interface SharedArray {
  readonly variable: Variable;
  readonly length: number;
  readonly span: Span;
}

export interface IrFunction {
  readonly name: string;
  /** Parameters as the host passes them: a list `payloads` is payloads_0, payloads_1 … */
  readonly params: readonly Variable[];
  readonly body: readonly Stmt[];
  readonly span: Span;
}

/** Text of one closed function and where it stands in a TypeScript file. */
export interface SourceText {
  readonly text: string;
  /** File as a person should see it (relative to the package where possible), or '' when unknown. */
  readonly file: string;
  /** The file as a debugger opens it; '' when unknown. */
  readonly path?: string;
  /** Line and column (1-based) in that file of an offset in `text`. */
  position(offset: number): { readonly line: number; readonly column: number };
  /** A piece of `text` on one line, as the author wrote it if the source is known, else as it runs. */
  piece(start: number, end: number): string;
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
  readonly cluster: number;
  /** A short, stable text of the compile-time values, for messages and cache keys. */
  readonly specialization: string;
}

/** CUDA that defines foreign functions, each `extern "C"`: compiled by itself, linked to every kernel that calls one. */
export interface ForeignSource {
  /** Its name in messages: 'NVSHMEM'. */
  readonly name: string;
  /** Called where a kernel is compiled: the text, and the folders in which its `#include`s are looked for. */
  find(): { readonly text: string; readonly folders: readonly string[] };
}
