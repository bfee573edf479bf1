/** Calls of device functions, `arrive({ win, epoch })`: the function's body takes the place of the call. */

import * as build from '../build.js';
import type { DeviceDefinition } from '../definition.js';
import type { Expr, InlinedCall, Stmt, Variable } from '../ir.js';
import { rewriteStatements, walkStatements } from '../walk.js';
import type { Call } from './call.js';
import { Context, Exits, freeze, isStable, Poisoned } from './context.js';
import { takeAll } from './take.js';
import { expression, type Value } from './values.js';

/** A body that is inlined more often than this is a mistake, and would take minutes to compile. */
const mostCalls = 4096;

export function callDevice(call: Call, definition: DeviceDefinition): Value {
  const { ctx, node } = call;
  const firstOwn = ctx.module.nextId;
  const { body: lowered, exits } = lowerCall(call, definition, (param, value) =>
    freeze(ctx, node, param, value),
  );
  const simple = simpleResult(lowered, exits);
  if (simple !== undefined) {
    for (const stmt of lowered.slice(0, -1)) ctx.emit(stmt);
    return simple;
  }
  const results = new Results(call, exits, firstOwn);
  const value = results.join(lowered);
  const body = withoutJumps(results.rewritten(lowered), exits.call);
  for (const stmt of results.declarations) ctx.emit(stmt);
  if (body.length > 0) ctx.emit({ kind: 'block', span: ctx.span(node), body, call: exits.call });
  return value;
}

/** The body of a function for one call of it; `enter` makes of an argument what the body knows it as. */
export function lowerCall(
  call: Call,
  definition: DeviceDefinition,
  enter: (param: string, value: Value) => Value,
): { readonly body: readonly Stmt[]; readonly exits: Exits } {
  const { ctx, node, name } = call;
  const { module } = ctx;
  const given = takeAll(ctx, node, givenArguments(call, definition), definition.params, name);
  const problems = module.problems.length;
  const exits = new Exits({ name }, definition.returns);
  const callee = new Context(module, definition.source, exits);
  let ends = false;
  const entries = new Map<string, Value>();
  const before = ctx.capture(() => {
    for (const [param, value] of given) entries.set(param, enter(param, value));
  });
  const statements = callee.capture(() => {
    ends = lowerOnce(call, callee, definition, entries);
  });
  if (definition.returns !== 'void' && (!ends || exits.values.size === 0)) {
    const end = definition.source.text.length;
    const message = ends
      ? 'no return can be reached, but the header promises a result'
      : 'the end can be reached without a return, but the header promises a result';
    module.report('HK607', message, definition.source, { start: Math.max(0, end - 1), end });
  }
  // The mistake inside has been reported; nothing more is reported about the result.
  if (module.problems.length > problems) throw new Poisoned();
  return { body: [...before, ...statements], exits };
}

function lowerOnce(
  call: Call,
  callee: Context,
  definition: DeviceDefinition,
  params: ReadonlyMap<string, Value>,
): boolean {
  const { module } = callee;
  if (module.active.has(definition)) {
    const why = 'a device function cannot, for it takes the place of its calls';
    call.fail('HK701', `${call.name} calls itself; ${why}`);
  }
  if (++module.calls > mostCalls)
    call.fail(
      'HK703',
      `device functions are called more than ${mostCalls} times in all; call them in a loop`,
    );
  module.active.add(definition);
  try {
    return module.lowerBody(callee, definition, params);
  } finally {
    module.active.delete(definition);
  }
}

/** The value of a function that only computes: it needs no variable of its own. */
function simpleResult(body: readonly Stmt[], { values }: Exits): Value | undefined {
  const last = body.at(-1);
  const only = body.slice(0, -1).every((stmt) => stmt.kind === 'let' && stmt.init !== null);
  return last !== undefined && only ? values.get(last) : undefined;
}

function givenArguments(call: Call, definition: DeviceDefinition): Value & { kind: 'record' } {
  const names = Object.keys(definition.params);
  const only = call.args[0];
  if (only === undefined && names.length === 0) return { kind: 'record', entries: new Map(), what: '' };
  if (call.args.length === 1 && only?.value.kind === 'record') return only.value;
  return call.fail('HK305', `call a device function with one object: ${call.name}({ ${names.join(', ')} })`);
}

/** A body whose end is the end of `call`'s block, with the jumps gone that lead there anyway. */
export function withoutJumps(body: readonly Stmt[], call: InlinedCall): readonly Stmt[] {
  const leaves = (list: readonly Stmt[]): boolean => {
    const last = list.at(-1);
    return last?.kind === 'leave' && last.call === call;
  };
  // The statements after an `if` that leaves on one side belong to its other side.
  const at = body.findIndex((stmt) => stmt.kind === 'if' && (leaves(stmt.then) || leaves(stmt.else)));
  const fork = body[at];
  if (fork?.kind === 'if') {
    const rest = body.slice(at + 1);
    const side = (list: readonly Stmt[]): readonly Stmt[] =>
      withoutJumps(leaves(list) ? list : [...list, ...rest], call);
    return [...body.slice(0, at), ...branch(fork, side(fork.then), side(fork.else))];
  }
  const before = body.slice(0, -1);
  if (leaves(body)) return before;
  const last = body.at(-1);
  if (last?.kind === 'if') {
    const then = withoutJumps(last.then, call);
    return [...before, { ...last, then, else: withoutJumps(last.else, call) }];
  }
  if (last?.kind === 'block') return [...before, { ...last, body: withoutJumps(last.body, call) }];
  return body;
}

/** The `if` with other sides; one with an empty first side is turned round. */
function branch(of: Stmt & { kind: 'if' }, then: readonly Stmt[], otherwise: readonly Stmt[]): Stmt[] {
  if (then.length > 0) return [{ ...of, then, else: otherwise }];
  return otherwise.length === 0 ? [] : branch({ ...of, test: build.not(of.test) }, otherwise, []);
}

/** The results of an inlined function, as one value that outlives the function's block. */

interface Returned {
  readonly leave: Stmt;
  readonly value: Value;
}

export class Results {
  /** Declarations of the result variables; they stand before the inlined block. */
  readonly declarations: Stmt[] = [];
  readonly #call: Call;
  readonly #exits: Exits;
  /** The function declares the variables from this id on; those below are its caller's. */
  readonly #firstOwn: number;
  /** The assignments of each return before it leaves. */
  readonly #assigned = new Map<Stmt, Stmt[]>();
  /** The expression that stands where a returned register array was declared. */
  readonly #moved = new Map<Stmt, readonly Stmt[]>();

  constructor(call: Call, exits: Exits, firstOwn: number) {
    this.#call = call;
    this.#exits = exits;
    this.#firstOwn = firstOwn;
  }

  /** The value of the call, given the function's body. */
  join(body: readonly Stmt[]): Value {
    const { name, into } = this.#call;
    if (into === 'nowhere' || this.#exits.returns === 'void') return { kind: 'void' };
    const all = [...this.#exits.values].map(([leave, value]) => ({ leave, value }));
    // The name that the author gives the result, where there is one.
    if (into === undefined) return this.#join(resultOf(name), all, body);
    const value = this.#join(into.name, all, body);
    const made = value.kind === 'expr' && value.expr.kind === 'variable' ? value.expr.variable : undefined;
    if (made !== undefined && this.#isResult(made)) into.variable = made;
    return value;
  }

  /** The body, with what its returns assign, and without what `declarations` has. */
  rewritten(body: readonly Stmt[]): readonly Stmt[] {
    if (this.#moved.size + this.#assigned.size === 0) return body;
    return rewriteStatements(
      body,
      (stmt) => this.#moved.get(stmt) ?? [...(this.#assigned.get(stmt) ?? []), stmt],
    );
  }

  #join(name: string, all: readonly Returned[], body: readonly Stmt[]): Value {
    const { value: first } = all[0]!;
    const part = (inner: string, of: (value: Value) => Value | undefined): Value =>
      this.#join(
        inner,
        all.map(({ leave, value }) => ({ leave, value: of(value) ?? this.#differ() })),
        body,
      );
    switch (first.kind) {
      case 'expr':
        return expression(this.#runtime(name, all));
      case 'window': {
        if (!all.every(({ value }) => value.kind === 'window' && value.variable === first.variable)) {
          return this.#differ();
        }
        const rank = part(`${name}Rank`, (of) => (of.kind === 'window' ? expression(of.rank) : undefined));
        return rank.kind === 'expr' ? { ...first, rank: rank.expr } : this.#differ();
      }
      case 'list':
        return {
          ...first,
          items: first.items.map((_, i) =>
            part(`${name}${i}`, (of) => (of.kind === 'list' ? of.items[i] : undefined)),
          ),
        };
      case 'record': {
        const entries = [...first.entries.keys()].map(
          (key) =>
            [key, part(key, (of) => (of.kind === 'record' ? of.entries.get(key) : undefined))] as const,
        );
        return { ...first, entries: new Map(entries) };
      }
      default:
        if (!all.every(({ value }) => isSame(value, first))) return this.#differ();
        if (first.kind === 'registers') this.#outlive(first.variable, body);
        return first;
    }
  }

  #runtime(name: string, all: readonly Returned[]): Expr {
    const exprs = all.map(({ value }) => (value.kind === 'expr' ? value.expr : this.#differ()));
    const first = exprs[0]!;
    const isOutside =
      first.kind !== 'variable' || (first.variable.id < this.#firstOwn && !first.variable.mutable);
    if (isStable(first) && isOutside && exprs.every((expr) => isSameStable(expr, first))) return first;
    if (!exprs.every((expr) => build.sameType(expr.type, first.type))) return this.#differ();
    const { ctx, node, into } = this.#call;
    const mutable = into !== undefined && into !== 'nowhere' && into.mutable;
    const variable =
      into === undefined ? ctx.unnamed(name, first.type) : ctx.variable(name, first.type, mutable);
    this.declarations.push({ kind: 'let', span: ctx.span(node), variable, init: null });
    for (const [i, { leave }] of all.entries()) {
      const assigned = this.#assigned.get(leave) ?? [];
      this.#assigned.set(leave, assigned);
      assigned.push({ kind: 'assign', span: leave.span, variable, value: exprs[i]! });
    }
    return ctx.read(variable);
  }

  #isResult(variable: Variable): boolean {
    return this.declarations.some((stmt) => stmt.kind === 'let' && stmt.variable === variable);
  }

  /** Declares a register array of the function's own before the block. */
  #outlive(array: Variable, body: readonly Stmt[]): void {
    walkStatements(body, (stmt) => {
      if (stmt.kind !== 'registers' || stmt.variable !== array || array.type.kind !== 'registers') return;
      const { of, length } = array.type;
      if (stmt.fill.kind === 'const' && body.includes(stmt)) {
        this.declarations.push(stmt);
        this.#moved.set(stmt, []);
        return;
      }
      this.declarations.push({ ...stmt, fill: build.zero(of) });
      const { span, fill: value } = stmt;
      const elements = Array.from(
        { length },
        (_, index): Stmt => ({ kind: 'assignRegister', span, array, index, value }),
      );
      this.#moved.set(stmt, elements);
    });
  }

  #differ(): never {
    const { name } = this.#call;
    const message = `the returns of ${name} give different things; return numbers, pointers or lists of them, or return in one place`;
    return this.#call.fail('HK607', message);
  }
}

/** The name of a function's result, in snake_case or camelCase as the function's name is. */
export const resultOf = (name: string): string => `${name}${name.includes('_') ? '_result' : 'Result'}`;

const isSameStable = (a: Expr, b: Expr): boolean =>
  (a.kind === 'const' &&
    b.kind === 'const' &&
    build.sameType(a.type, b.type) &&
    Object.is(a.value, b.value)) ||
  (a.kind === 'variable' && b.kind === 'variable' && a.variable === b.variable) ||
  (a.kind === 'builtin' && b.kind === 'builtin' && a.name === b.name);

/** Are two values, which exist only in the compiler, the same? */
function isSame(a: Value, b: Value): boolean {
  if ((a.kind === 'literal' && b.kind === 'literal') || (a.kind === 'string' && b.kind === 'string')) {
    return a.value === b.value;
  }
  if ((a.kind === 'registers' && b.kind === 'registers') || (a.kind === 'handle' && b.kind === 'handle')) {
    return a.variable === b.variable;
  }
  return a.kind === 'device' && b.kind === 'device' && a.definition === b.definition;
}
