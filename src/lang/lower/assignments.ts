/** Expressions that stand as statements: calls and assignments. */
import type * as acorn from 'acorn';
import * as build from '../build.js';
import type { Expr } from '../ir.js';
import { valueAs } from './coerce.js';
import type { Context } from './context.js';
import { evaluate, inOrder } from './expressions.js';
import { registerIndex } from './members.js';
import { binary } from './operators.js';
import { unsupported } from './syntax.js';
import { expression, type Value } from './values.js';

export function expressionStatement(ctx: Context, node: acorn.Expression, whole: acorn.Node): void {
  switch (node.type) {
    case 'AssignmentExpression':
      assignment(ctx, node, whole);
      return;
    case 'UpdateExpression':
      update(ctx, node, whole);
      return;
    case 'SequenceExpression':
      for (const part of node.expressions) expressionStatement(ctx, part, part);
      return;
    case 'CallExpression':
      if (evaluate(ctx, node, 'nowhere').kind === 'void') return;
      break;
    case 'LogicalExpression':
    case 'ConditionalExpression':
      unsupported(ctx, node, 'an operator as a statement', 'write an if');
      break;
    default:
      evaluate(ctx, node);
  }
  ctx.fail(node, 'HK606', `\`${ctx.text(node)}\` does nothing; use its value or remove it`);
}

function assignment(ctx: Context, node: acorn.AssignmentExpression, whole: acorn.Node): void {
  const { operator, left, right } = node;
  if (operator === '**=' || operator === '&&=' || operator === '||=' || operator === '??=') {
    unsupported(ctx, node, `the operator ${operator}`);
  }
  const target = assignable(ctx, left);
  if (operator === '=') {
    assign(ctx, whole, target, right, evaluate(ctx, right));
    return;
  }
  const before = { node: left, value: expression(target) };
  const [current, value] = inOrder(ctx, [right], [before]);
  assign(
    ctx,
    whole,
    target,
    node,
    binary(ctx, node, operator.slice(0, -1) as acorn.BinaryOperator, current!, value!),
  );
}

function update(ctx: Context, node: acorn.UpdateExpression, whole: acorn.Node): void {
  const target = assignable(ctx, node.argument);
  const current = { node: node.argument, value: expression(target) };
  const one = { node, value: { kind: 'literal', value: 1 } as const };
  assign(ctx, whole, target, node, binary(ctx, node, node.operator === '++' ? '+' : '-', current, one));
}

/** The place that is assigned. */
type Target = Expr & { readonly kind: 'variable' | 'register' };

function assignable(ctx: Context, node: acorn.Node): Target {
  const pattern = node as acorn.Pattern | acorn.Expression;
  if (pattern.type === 'MemberExpression') return register(ctx, pattern);
  if (pattern.type !== 'Identifier') return unsupported(ctx, node, 'destructuring in an assignment');
  const value = evaluate(ctx, pattern);
  if (value.kind === 'expr' && value.expr.kind === 'variable' && value.expr.variable.mutable)
    return value.expr;
  return ctx.fail(node, 'HK403', `${pattern.name} cannot be assigned: only a variable declared with let can`);
}

function register(ctx: Context, node: acorn.MemberExpression): Target {
  const of = evaluate(ctx, node.object);
  if (of.kind !== 'registers' || !node.computed) {
    const advice =
      of.kind === 'expr' && of.expr.type.kind === 'pointer'
        ? '; write g.store(pointer.at(index), value)'
        : '';
    return ctx.fail(node, 'HK403', `\`${ctx.text(node)}\` cannot be assigned${advice}`);
  }
  const index = registerIndex(ctx, node.property, of, evaluate(ctx, node.property));
  return { kind: 'register', type: build.valueType(of.of), array: of.variable, index };
}

function assign(ctx: Context, whole: acorn.Node, target: Target, node: acorn.Node, given: Value): void {
  const span = ctx.span(whole);
  const of = target.kind === 'variable' ? target.variable : target.array;
  const value = valueAs(ctx, node, given, target.type, `for ${of.name}`);
  if (target.kind === 'variable') ctx.emit({ kind: 'assign', span, variable: of, value });
  else ctx.emit({ kind: 'assignRegister', span, array: of, index: target.index, value });
}
