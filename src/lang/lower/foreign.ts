/** Calls of foreign functions: CUDA calls them, everything else looks at their twins. */

import { HeddleError } from '../../base/errors.js';
import * as build from '../build.js';
import type { DeviceDefinition, Foreign, ForeignEffects } from '../definition.js';
import type { Effect, Expr, Span, Stmt, Variable } from '../ir.js';
import { operations } from '../operations/index.js';
import type { Access } from '../operations/operation.js';
import { isExpr, rewriteStatements, walkExpression, walkStatements } from '../walk.js';
import type { Call } from './call.js';
import { lowerCall, resultOf, withoutJumps } from './inline.js';
import { describe, expression, type Value } from './values.js';

/** The twin takes the place of the call for all but CUDA, with its arguments as variables of its own. */
export function callForeign(
  call: Call,
  definition: DeviceDefinition,
  { header, source: from, effects }: Foreign,
): Value {
  const { ctx, node, name, into } = call;
  const args: Expr[] = [];
  const pointers = new Map<Variable, string>();
  const { body, exits } = lowerCall(call, definition, (param, value) => {
    const own = ctx.variable(param, runtime(value).type);
    ctx.emit({ kind: 'let', span: ctx.span(node), variable: own, init: runtime(value) });
    args.push(runtime(value));
    pointers.set(own, param);
    return expression(ctx.read(own));
  });
  const source = ctx.module.sourceIndex(definition.source);
  for (const { span, message } of broken(effects, body, pointers)) {
    // In what the twin calls, there is no place to show.
    const at = span?.source === source ? span : { start: 0, end: 1 };
    ctx.module.report('HK704', `${name} ${message}`, definition.source, at);
  }
  const { returns: spec } = definition;
  const returns = typeof spec === 'string' && spec !== 'void' ? build.valueType(spec) : build.voidType;
  const result = ctx.result(returns, resultOf(name), into);
  const assigned = rewriteStatements(body, (stmt) => {
    const returned = exits.values.get(stmt);
    if (returned === undefined || result === null) return [stmt];
    return [{ kind: 'assign', span: stmt.span, variable: result, value: runtime(returned) }, stmt];
  });
  const span = ctx.span(node);
  const twin: Stmt = { kind: 'block', span, body: withoutJumps(assigned, exits.call), call: exits.call };
  ctx.emit({
    kind: 'foreign',
    span,
    callee: { name, header, source: from, returns },
    args,
    result,
    twin: [twin],
  });
  return result === null ? { kind: 'void' } : expression(ctx.read(result));
}

/** A foreign function takes and returns numbers, flags and pointers. */
function runtime(value: Value): Expr {
  if (value.kind === 'expr') return value.expr;
  throw new HeddleError('HEDDLE_LOWER', `${describe(value)} reached a foreign function`);
}

/** The twin of a foreign function, held against what the function's header says that it does. */

/** Something that the twin does and the header does not say; or the reverse, which has no place. */
interface Breach {
  readonly span: Span | undefined;
  readonly message: string;
}

/** Effects that are lists of what is touched, and how. */
type Listed = 'reads' | 'writes' | 'orders';

export function broken(
  says: ForeignEffects,
  twin: readonly Stmt[],
  params: ReadonlyMap<Variable, string>,
): Breach[] {
  const found: Breach[] = [];
  const done: Record<Listed, Set<string>> = { reads: new Set(), writes: new Set(), orders: new Set() };
  const origins = new Origins(params);
  walkStatements(twin, (stmt) => {
    origins.follow(stmt);
    if (stmt.kind !== 'effect') return;
    const { effect, span } = stmt;
    if (says.warp && effect.op.startsWith('warp.')) return;
    const { alone } = operations[effect.op];
    if (alone === undefined) {
      const message = `has a twin with g.${effect.op}, which involves more than its own thread`;
      found.push({ span, message });
      return;
    }
    const does = (what: Listed, of: string): void => {
      done[what].add(of);
      if (says[what].some((one) => one === of)) return;
      const message = `${verbs[what]} ${of} here, but its effects do not say so: add it to ${what}`;
      found.push({ span, message });
    };
    for (const [operand, accesses] of Object.entries(alone)) {
      const params = origins.ofOperand(effect, operand);
      for (const access of accesses ?? []) for (const param of params) does(access, param);
    }
    const order = orderOf(effect);
    if (order !== undefined) does('orders', order);
  });
  for (const what of ['reads', 'writes', 'orders'] as const) {
    for (const one of says[what]) {
      if (done[what].has(one)) continue;
      found.push({ span: undefined, message: `says that it ${verbs[what]} ${one}, but its twin never does` });
    }
  }
  return found;
}

const verbs = { reads: 'reads', writes: 'writes', orders: 'orders as' } as const satisfies Record<
  Access | 'orders',
  string
>;

function orderOf(effect: Effect): string | undefined {
  if (!('order' in effect) || effect.order === 'weak' || effect.order === 'relaxed') return undefined;
  return `${effect.order}.${effect.scope}`;
}

/** The parameters from which a pointer of the twin comes. */
class Origins {
  readonly #of = new Map<Variable, Set<string>>();

  constructor(params: ReadonlyMap<Variable, string>) {
    for (const [variable, name] of params) this.#of.set(variable, new Set([name]));
  }

  follow(stmt: Stmt): void {
    const value = stmt.kind === 'let' ? stmt.init : stmt.kind === 'assign' ? stmt.value : null;
    if (value?.type.kind !== 'pointer' || (stmt.kind !== 'let' && stmt.kind !== 'assign')) return;
    this.#of.set(stmt.variable, new Set([...(this.#of.get(stmt.variable) ?? []), ...this.of(value)]));
  }

  of(pointer: Expr): Set<string> {
    const found = new Set<string>();
    walkExpression(pointer, (part) => {
      if (part.kind !== 'variable' || part.type.kind !== 'pointer') return;
      for (const name of this.#of.get(part.variable) ?? []) found.add(name);
    });
    return found;
  }

  ofOperand(effect: Effect, operand: string): Set<string> {
    const pointer: unknown = Object.entries(effect).find(([name]) => name === operand)?.[1];
    return isExpr(pointer) ? this.of(pointer) : new Set();
  }
}
