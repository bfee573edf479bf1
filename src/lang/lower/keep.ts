/** Values that are looked at later: they must not change with a variable in between. */
import type { Node } from 'acorn';
import type { Expr } from '../ir.js';
import { type Context, isStable } from './context.js';
import { expression, type Value } from './values.js';

export function letVariable(ctx: Context, node: Node, name: string, init: Expr, mutable: boolean): Value {
  const variable = ctx.variable(name, init.type, mutable);
  ctx.emit({ kind: 'let', span: ctx.span(node), variable, init });
  return expression(ctx.read(variable));
}

/** The value to which a const is bound: constants stay constants, run-time values become variables. */
export function keep(ctx: Context, node: Node, name: string, value: Value): Value {
  switch (value.kind) {
    case 'expr':
      if (value.expr.kind === 'const') return value;
      return { ...value, ...letVariable(ctx, node, name, value.expr, false) };
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
