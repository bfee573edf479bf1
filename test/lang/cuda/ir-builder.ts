/** A tiny builder of IR for tests of the printer, independent of the parser. */
import type {
  BinaryOp,
  Effect,
  Expr,
  IrModule,
  SourceText,
  Stmt,
  UnaryOp,
  Variable,
} from '../../../src/lang/ir.js';
import type { PureFunction } from '../../../src/lang/operations/pure.js';
import type { Field, IrType, Layout, Space, ValueName } from '../../../src/lang/types.js';

export type Memory = Exclude<ValueName, 'bool'>;

export const value = (name: ValueName): IrType => ({ kind: 'value', name });
export const pointer = (to: Memory, space: Space = 'global'): IrType => ({ kind: 'pointer', to, space });

let nextId = 0;
export function variable(name: string, type: IrType, mutable = false): Variable {
  return { id: nextId++, name, type, mutable };
}

const at = { start: 0, end: 0, source: 0 };

// Expressions.
export const read = (v: Variable): Expr => ({ kind: 'variable', type: v.type, variable: v });
export const constant = (name: ValueName, v: number | bigint | boolean): Expr => ({
  kind: 'const',
  type: value(name),
  value: v,
});
export const u32 = (v: number): Expr => constant('u32', v);
export const f32 = (v: number): Expr => constant('f32', Math.fround(v));
export const builtin = (name: (Expr & { kind: 'builtin' })['name']): Expr => ({
  kind: 'builtin',
  type: value('u32'),
  name,
});
const comparisons: readonly BinaryOp[] = ['==', '!=', '<', '<=', '>', '>='];
export const binary = (op: BinaryOp, left: Expr, right: Expr): Expr => ({
  kind: 'binary',
  type: comparisons.includes(op) ? value('bool') : left.type,
  op,
  left,
  right,
});
export const unary = (op: UnaryOp, arg: Expr): Expr => ({ kind: 'unary', type: arg.type, op, arg });
export const select = (test: Expr, then: Expr, no: Expr): Expr => {
  const branches = { then, else: no };
  return { kind: 'select', type: then.type, test, ...branches };
};
export const pure = (name: PureFunction, ...args: Expr[]): Expr => ({
  kind: 'pure',
  type: args[0]!.type,
  name,
  args,
});
export const convert = (to: ValueName, arg: Expr): Expr => ({ kind: 'convert', type: value(to), arg });
export const bits = (to: ValueName, arg: Expr): Expr => ({ kind: 'bits', type: value(to), arg });
export const lane = (type: ValueName, vector: Expr, index: number): Expr => ({
  kind: 'lane',
  type: value(type),
  vector,
  index,
});
export const pack = (of: ValueName, lanes: Expr[]): Expr => ({ kind: 'pack', type: value('v16'), of, lanes });
export const packWord = (of: ValueName, lanes: Expr[]): Expr => ({
  kind: 'pack',
  type: value('u32'),
  of,
  lanes,
});
export const offset = (base: Expr, index: Expr): Expr => ({
  kind: 'offset',
  type: base.type,
  pointer: base,
  index,
});

// Statements.
export const define = (v: Variable, init: Expr): Stmt => ({ kind: 'let', span: at, variable: v, init });
export const assign = (v: Variable, init: Expr): Stmt => ({
  kind: 'assign',
  span: at,
  variable: v,
  value: init,
});
export const effect = (e: Effect, result: Variable | null = null): Stmt => ({
  kind: 'effect',
  span: at,
  effect: e,
  result,
});
export const when = (test: Expr, then: Stmt[], no: Stmt[] = []): Stmt => {
  const branches = { then, else: no };
  return { kind: 'if', span: at, test, ...branches };
};
export const loop = (init: Stmt[], test: Expr, update: Stmt[], body: Stmt[]): Stmt => ({
  kind: 'for',
  span: at,
  init,
  test,
  update,
  body,
});
/** `for (let i = 0; i < end; i += step)`. */
export const count = (end: Expr, body: (i: Expr) => Stmt[], step = 1): Stmt => {
  const i = variable('i', value('u32'), true);
  return loop(
    [define(i, u32(0))],
    binary('<', read(i), end),
    [assign(i, binary('+', read(i), u32(step)))],
    body(read(i)),
  );
};

// Effects.
type Ordering<Op extends Effect['op']> = Partial<
  Omit<Extract<Effect, { op: Op }>, 'op' | 'pointer' | 'value'>
>;
export const load = (from: Expr, options: Ordering<'load'> = {}): Effect => ({
  op: 'load',
  pointer: from,
  order: 'weak',
  scope: 'gpu',
  cache: 'keep',
  ...options,
});
export const store = (to: Expr, what: Expr, options: Ordering<'store'> = {}): Effect => ({
  op: 'store',
  pointer: to,
  value: what,
  order: 'weak',
  scope: 'gpu',
  cache: 'keep',
  ...options,
});

// Modules.
export function param(name: string, type: IrType): Variable {
  return variable(name, type);
}

export function layout(name: string, fields: Pick<Field, 'name' | 'type' | 'length'>[]): Layout {
  const placed = fields.map((f, i) => ({ ...f, shape: [f.length], dimensions: [], offset: i * 4096 }));
  return { name, fields: placed, bytes: fields.length * 4096 };
}

export function module(
  name: string,
  params: Variable[],
  body: Stmt[],
  more: Partial<Omit<IrModule, 'name' | 'entry'>> = {},
): IrModule {
  return {
    name,
    entry: { name, params, body, span: at },
    shared: [],
    layouts: [],
    sources: [],
    maxThreads: 256,
    cluster: 1,
    specialization: '',
    ...more,
  };
}

export function shared(
  name: string,
  of: Memory,
  length: number,
): { variable: Variable; length: number; span: typeof at } {
  return { variable: variable(name, pointer(of, 'shared')), length, span: at };
}

/** A source whose offset n is line n + 1. */
export function source(file: string): SourceText {
  return { text: '', file, position: (start) => ({ line: start + 1, column: 1 }), piece: () => '' };
}
