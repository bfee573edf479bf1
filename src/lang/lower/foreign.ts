/** Calls of foreign functions: CUDA calls them, everything else looks at their twins. */
import { HeddleError } from '../../base/errors.js';
import * as build from '../build.js';
import type { DeviceDefinition, Foreign } from '../definition.js';
import type { Expr, Stmt, Variable } from '../ir.js';
import { rewriteStatements } from '../walk.js';
import type { Call } from './call.js';
import type { Into } from './context.js';
import { lowerCall, withoutJumps } from './inline.js';
import { resultOf } from './results.js';
import { broken } from './twin.js';
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
  const wanted: Exclude<Into, undefined> = into ?? { name: resultOf(name), mutable: false };
  const result =
    returns.kind === 'void' || wanted === 'nowhere'
      ? null
      : ctx.variable(wanted.name, returns, wanted.mutable);
  if (wanted !== 'nowhere' && result !== null) wanted.variable = result;
  const assigned = rewriteStatements(body, (stmt) => {
    const returned = exits.values.get(stmt);
    if (returned === undefined || result === null) return [stmt];
    return [{ kind: 'assign', span: stmt.span, variable: result, value: runtime(returned.value) }, stmt];
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
