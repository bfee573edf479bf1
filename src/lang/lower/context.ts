/**
 * The state of lowering one function: scopes, the statements emitted so far, and how to complain. `Context` is
 * what the rest of this folder passes around.
 */
import type { Node } from 'acorn';
import type { Definition } from '../definition.js';
import { type Code, type FramedSource, Problem } from '../diagnostics.js';
import type { Effect, Expr, InlinedCall, SharedArray, Span, Stmt, Variable } from '../ir.js';
import type { DeviceReturn } from '../kernel.js';
import type { IrType } from '../types.js';
import { expression, type Value } from './values.js';

/** The meaning of a name. `poison`: its declaration had an error, so its uses are not reported again. */
export type Binding = Value | { readonly kind: 'poison' };

/** Thrown to leave a statement that uses something already reported. */
export class Poisoned extends Error {}

/** State that a kernel shares with the functions that are inlined into it. */
export class ModuleContext {
  nextId = 0;
  /** Iterations that g.unroll has made so far. */
  unrolled = 0;
  /** Calls of device functions so far, and the functions whose calls are around. */
  calls = 0;
  readonly active = new Set<Definition>();
  readonly problems: Problem[] = [];
  readonly sources: FramedSource[] = [];
  readonly shared: SharedArray[] = [];

  constructor(
    /** Lowers the body of a function; true when control never comes out at its end. */
    readonly lowerBody: (ctx: Context, definition: Definition, params: ReadonlyMap<string, Value>) => boolean,
  ) {}

  report(code: Code, message: string, source: FramedSource, { start, end }: Range): void {
    this.problems.push(new Problem(code, message, source, start, end));
  }

  sourceIndex(source: FramedSource): number {
    const known = this.sources.indexOf(source);
    return known >= 0 ? known : this.sources.push(source) - 1;
  }
}

type Range = Pick<Span, 'start' | 'end'>;

/** The place of an effect's result: the variable that is being declared, nowhere, or (undefined) a fresh variable. */
export type Into = Declared | 'nowhere' | undefined;

/** The variable that an initialiser declares; `variable` is set when the initialiser itself, one effect or memory, has done so. */
export interface Declared {
  readonly name: string;
  readonly mutable: boolean;
  /** The whole declaration. */
  readonly node: Node;
  variable?: Variable;
}

class Scope {
  readonly names = new Map<string, Binding>();
  constructor(readonly parent: Scope | undefined) {}
}

/** The returns of a device function that is being inlined. */
export class Exits {
  /** Results by the statement that leaves. */
  readonly values = new Map<Stmt, Value>();

  constructor(
    readonly call: InlinedCall,
    readonly returns: DeviceReturn,
  ) {}
}

type LoopKind = 'loop' | 'unrolled';

export class Context {
  /** Innermost last. `broken`: has a break of its own. */
  readonly loops: { readonly kind: LoopKind; broken: boolean }[] = [];
  #scope = new Scope(undefined);
  #out: Stmt[] = [];
  readonly #sourceIndex: number;

  constructor(
    readonly module: ModuleContext,
    readonly source: FramedSource,
    /** The returns of a device function; a kernel has none. */
    readonly exits: Exits | undefined,
  ) {
    this.#sourceIndex = module.sourceIndex(source);
  }

  span(node: Node): Span {
    return { start: node.start, end: node.end, source: this.#sourceIndex };
  }

  fail(node: Node, code: Code, message: string): never {
    throw new Problem(code, message, this.source, node.start, node.end);
  }

  text(node: Node): string {
    const text = this.source.piece(node.start, node.end);
    return text.length > 60 ? `${text.slice(0, 57)}…` : text;
  }

  declare(name: string, binding: Binding): void {
    this.#scope.names.set(name, binding);
  }

  find(name: string): Binding | undefined {
    for (let scope: Scope | undefined = this.#scope; scope !== undefined; scope = scope.parent) {
      const binding = scope.names.get(name);
      if (binding !== undefined) return binding;
    }
    return undefined;
  }

  variable(name: string, type: IrType, mutable = false): Variable {
    return { id: this.module.nextId++, name, type, mutable };
  }

  unnamed(name: string, type: IrType): Variable {
    return { ...this.variable(name, type), unnamed: true };
  }

  read(variable: Variable): Expr {
    return { kind: 'variable', type: variable.type, variable };
  }

  emit(stmt: Stmt): void {
    this.#out.push(stmt);
  }

  get emitted(): number {
    return this.#out.length;
  }

  /** Removes the emitted statements behind the first `first`, and returns them. */
  takeBack(first: number): Stmt[] {
    return this.#out.splice(first);
  }

  /** The statements that `run` emits, instead of among the others. */
  capture(run: () => void): Stmt[] {
    const outer = this.#out;
    const mine: Stmt[] = [];
    this.#out = mine;
    try {
      run();
    } finally {
      this.#out = outer;
    }
    return mine;
  }

  /** Collects the statements that `run` emits, in a scope of their own. */
  collect(run: () => void): Stmt[] {
    return this.capture(() => this.inScope(run));
  }

  /** One error does not hide the next: `run` is given up at its first, what follows it is still looked at. */
  recover(run: () => void): boolean {
    try {
      run();
      return true;
    } catch (error) {
      if (error instanceof Problem) this.module.problems.push(error);
      else if (!(error instanceof Poisoned)) throw error;
      return false;
    }
  }

  inLoop(kind: LoopKind, run: () => void): { readonly broken: boolean } {
    const loop = { kind, broken: false };
    this.loops.push(loop);
    try {
      run();
    } finally {
      this.loops.pop();
    }
    return loop;
  }

  inScope(run: () => void): void {
    const outer = this.#scope;
    this.#scope = new Scope(outer);
    try {
      run();
    } finally {
      this.#scope = outer;
    }
  }

  /** The variable that keeps a result, if somebody wants it; `name` is for a fresh one. */
  result(type: IrType, name: string, into: Into): Variable | null {
    if (type.kind === 'void' || into === 'nowhere') return null;
    if (into === undefined) return this.unnamed(name, type);
    into.variable = this.variable(into.name, type, into.mutable);
    return into.variable;
  }

  /** Emits an effect; `name` is for a fresh variable that keeps its result. */
  effect(node: Node, effect: Effect, result: IrType, name: string, into: Into): Value {
    const variable = this.result(result, name, into);
    this.emit({ kind: 'effect', span: this.span(node), effect, result: variable });
    return variable === null ? { kind: 'void' } : expression(this.read(variable));
  }

  /** A variable that keeps the value of a pure expression as it is now. */
  keep(node: Node, name: string, expr: Expr): Expr {
    if (isStable(expr)) return expr;
    const variable = this.unnamed(name, expr.type);
    this.emit({ kind: 'let', span: this.span(node), variable, init: expr });
    return this.read(variable);
  }
}

/** Does it have the same value wherever it is read? */
export const isStable = (expr: Expr): boolean =>
  expr.kind === 'const' || expr.kind === 'builtin' || (expr.kind === 'variable' && !expr.variable.mutable);

// Values that are looked at later: they must not change with a variable in between.

export function letVariable(ctx: Context, node: Node, name: string, init: Expr, mutable: boolean): Expr {
  const variable = ctx.variable(name, init.type, mutable);
  ctx.emit({ kind: 'let', span: ctx.span(node), variable, init });
  return ctx.read(variable);
}

/** The value to which a const is bound: constants stay constants, run-time values become variables. */
export function keep(ctx: Context, node: Node, name: string, value: Value): Value {
  switch (value.kind) {
    case 'expr':
      if (value.expr.kind === 'const') return value;
      return { ...value, expr: letVariable(ctx, node, name, value.expr, false) };
    case 'window':
      return { ...value, rank: ctx.keep(node, `${name}Rank`, value.rank) };
    case 'list':
      return { ...value, items: value.items.map((item, i) => freeze(ctx, node, `${name}${i}`, item)) };
    case 'record': {
      const entries = [...value.entries].map(([key, entry]) => [key, freeze(ctx, node, key, entry)] as const);
      return { ...value, entries: new Map(entries) };
    }
    case 'method':
      return { ...value, of: freeze(ctx, node, name, value.of) };
    default:
      return value;
  }
}

/** Copies a value that is read only later, where a variable that it depends on may change meanwhile. */
export function freeze(ctx: Context, node: Node, name: string, value: Value): Value {
  return value.kind === 'expr' && isStable(value.expr) ? value : keep(ctx, node, name, value);
}
