/** Lowers statements. Each function here returns true when control never comes out at the end: what follows is dead. */

import type * as acorn from 'acorn';
import type { Expression, ForOfStatement, ForStatement, Node, ReturnStatement, Statement } from 'acorn';
import * as build from '../build.js';
import type { Expr, Stmt } from '../ir.js';
import { declares } from '../walk.js';
import { Call } from './call.js';
import { condition, constantInteger, requireSameShape, valueAs } from './coerce.js';
import type { Context } from './context.js';
import { declaration } from './declarations.js';
import { evaluate, evaluated, inOrder } from './expressions.js';
import { unroll as unrollName } from './intrinsics.js';
import { registerIndex } from './members.js';
import { binary } from './operators.js';
import { unsupported, wording } from './syntax.js';
import { take } from './take.js';
import { severalOf, type Value } from './values.js';

const mostUnrolled = 16384;

export function lowerStatements(ctx: Context, statements: readonly Statement[]): boolean {
  for (const statement of statements) {
    let ends = false;
    ctx.recover(() => {
      ends = lowerStatement(ctx, statement);
    });
    if (ends) return true;
  }
  return false;
}

function lowerStatement(ctx: Context, node: Statement): boolean {
  switch (node.type) {
    case 'VariableDeclaration':
      declaration(ctx, node);
      return false;
    case 'ExpressionStatement':
      if (node.directive === undefined) expressionStatement(ctx, node.expression, node);
      return false;
    case 'BlockStatement':
      return branch(ctx, node);
    case 'IfStatement': {
      const test = condition(ctx, evaluated(ctx, node.test));
      if (test.kind === 'const') {
        const taken = test.value ? node.consequent : node.alternate;
        return taken ? branch(ctx, taken) : false;
      }
      const [then, thenEnds] = collected(ctx, node.consequent);
      const [otherwise, otherwiseEnds] = node.alternate ? collected(ctx, node.alternate) : [[], false];
      if (then.length > 0 || otherwise.length > 0) {
        ctx.emit({ kind: 'if', span: ctx.span(node), test, then, else: otherwise });
      }
      return thenEnds && otherwiseEnds;
    }
    case 'WhileStatement':
      return loop(ctx, node, [], node.test, undefined, node.body);
    case 'ForStatement':
      return forLoop(ctx, node);
    case 'ForOfStatement':
      return unroll(ctx, node);
    case 'BreakStatement':
    case 'ContinueStatement': {
      if (node.label) return unsupported(ctx, node, 'a label');
      const kind = node.type === 'BreakStatement' ? 'break' : 'continue';
      const innermost = ctx.loops.at(-1);
      if (innermost?.kind === 'unrolled') {
        const message = `an unrolled loop is no loop any more, so it has no ${kind}; use an if`;
        return ctx.fail(node, 'HK605', message);
      }
      if (kind === 'break' && innermost) innermost.broken = true;
      ctx.emit({ kind, span: ctx.span(node) });
      return true;
    }
    case 'ReturnStatement':
      returnStatement(ctx, node);
      return true;
    case 'DebuggerStatement':
      ctx.effect(node, { op: 'debugger' }, build.voidType, '', 'nowhere');
      return false;
    case 'EmptyStatement':
      return false;
    case 'FunctionDeclaration':
      return unsupported(ctx, node, 'a nested function', 'make it a device() and pass it through `using`');
    case 'DoWhileStatement':
      return unsupported(ctx, node, 'do … while', 'write while (true) with a break');
    case 'SwitchStatement':
      return unsupported(ctx, node, 'switch', 'write if … else if');
    case 'ForInStatement':
      return unsupported(ctx, node, 'for … in', 'write for (const i of g.unroll(n))');
    default:
      return unsupported(ctx, node, wording(node.type));
  }
}

function collected(ctx: Context, node: Statement): [Stmt[], boolean] {
  let ends = false;
  const statements = ctx.collect(() => {
    ends = lowerStatements(ctx, node.type === 'BlockStatement' ? node.body : [node]);
  });
  return [statements, ends];
}

/** Statements that surely run: a block only where names need one. */
function branch(ctx: Context, node: Statement): boolean {
  const [body, ends] = collected(ctx, node);
  emitBlock(ctx, node, body);
  return ends;
}

function emitBlock(ctx: Context, node: Node, body: readonly Stmt[]): void {
  if (body.some(declares)) ctx.emit({ kind: 'block', span: ctx.span(node), body, call: null });
  else for (const stmt of body) ctx.emit(stmt);
}

// Loops

function forLoop(ctx: Context, node: ForStatement): boolean {
  let ends = false;
  ctx.inScope(() => {
    const init = ctx.capture(() => {
      if (node.init?.type === 'VariableDeclaration') declaration(ctx, node.init);
      else if (node.init) expressionStatement(ctx, node.init, node.init);
    });
    if (init.every((stmt) => stmt.kind === 'let' || stmt.kind === 'assign')) {
      ends = loop(ctx, node, init, node.test ?? undefined, node.update ?? undefined, node.body);
      return;
    }
    const body = ctx.capture(() => {
      for (const stmt of init) ctx.emit(stmt);
      ends = loop(ctx, node, [], node.test ?? undefined, node.update ?? undefined, node.body);
    });
    ctx.emit({ kind: 'block', span: ctx.span(node), body, call: null });
  });
  return ends;
}

/** Lowers a while loop, or with `updateNode` a for loop. An effect in the test moves to the head of the body, before a break. */
function loop(
  ctx: Context,
  node: Statement,
  init: readonly Stmt[],
  testNode: Expression | undefined,
  updateNode: Expression | undefined,
  bodyNode: Statement,
): boolean {
  const span = ctx.span(node);
  let test: Expr = build.boolean(true);
  const effects = ctx.capture(() => {
    if (testNode) test = condition(ctx, evaluated(ctx, testNode));
  });
  if (test.kind === 'const' && test.value === false && effects.length === 0) {
    // What `init` has assigned stays.
    emitBlock(ctx, node, init);
    return false;
  }
  const head: Stmt[] = [];
  if (testNode && effects.length > 0) {
    const at = ctx.span(testNode);
    const then: Stmt[] = [{ kind: 'break', span: at }];
    head.push(...effects, { kind: 'if', span: at, test: build.not(test), then, else: [] });
    test = build.boolean(true);
  }
  const update = ctx.capture(() => {
    if (updateNode) expressionStatement(ctx, updateNode, updateNode);
  });
  if (updateNode && !update.every((stmt) => stmt.kind === 'assign' || stmt.kind === 'assignRegister')) {
    return ctx.fail(updateNode, 'HK604', 'an update only computes; move it to the end of the body');
  }
  let rest: Stmt[] = [];
  const { broken } = ctx.inLoop('loop', () => {
    [rest] = collected(ctx, bodyNode);
  });
  const body = [...head, ...rest];
  if (node.type === 'ForStatement') ctx.emit({ kind: 'for', span, init, test, update, body });
  else ctx.emit({ kind: 'while', span, test, body });
  return test.kind === 'const' && !broken && head.length === 0;
}

function unroll(ctx: Context, node: ForOfStatement): boolean {
  const count = unrollCount(ctx, node);
  const declared = node.left.type === 'VariableDeclaration' ? node.left : undefined;
  const pattern = declared?.declarations[0]?.id;
  if (declared?.kind !== 'const' || pattern?.type !== 'Identifier') {
    return unsupported(ctx, node.left, 'this loop variable', 'write for (const i of g.unroll(n))');
  }
  let ends = false;
  ctx.inLoop('unrolled', () => {
    for (let i = 0; i < count && !ends; i++) {
      if (++ctx.module.unrolled > mostUnrolled) {
        const message = `unrolled loops repeat more than ${mostUnrolled} times in all; use a plain for loop`;
        ctx.fail(node, 'HK503', message);
      }
      const body = ctx.collect(() => {
        ctx.declare(pattern.name, { kind: 'literal', value: i });
        ends = lowerStatements(ctx, node.body.type === 'BlockStatement' ? node.body.body : [node.body]);
      });
      emitBlock(ctx, node.body, body);
    }
  });
  return ends;
}

function unrollCount(ctx: Context, node: ForOfStatement): number {
  const { right } = node;
  const callee =
    right.type === 'CallExpression' && right.callee.type !== 'Super' && evaluate(ctx, right.callee);
  if (
    right.type !== 'CallExpression' ||
    !callee ||
    callee.kind !== 'intrinsic' ||
    callee.name !== unrollName
  ) {
    return unsupported(ctx, right, 'for … of over this', 'write for (const i of g.unroll(n))');
  }
  const args = right.arguments.map((argument) => evaluated(ctx, argument));
  const call = new Call(ctx, right, 'g.unroll', args, undefined);
  call.expect('count');
  return constantInteger(ctx, call.arg(0), 'the number of iterations', mostUnrolled);
}

// Returning

function returnStatement(ctx: Context, node: ReturnStatement): void {
  const { exits } = ctx;
  if (node.argument) returnValue(ctx, node.argument, node);
  else if (exits === undefined) ctx.emit({ kind: 'return', span: ctx.span(node) });
  else if (exits.returns === 'void') ctx.emit({ kind: 'leave', span: ctx.span(node), call: exits.call });
  else ctx.fail(node, 'HK607', 'the header says that something is returned');
}

/** `return value`, or the expression of `(g) => value`. */
function returnValue(ctx: Context, node: Expression, whole: Node): void {
  const { exits } = ctx;
  if (exits === undefined) ctx.fail(whole, 'HK607', 'a kernel returns nothing');
  if (exits.returns === 'void') {
    ctx.fail(whole, 'HK607', "the header has no `returns`; write returns: 'u32' (or another type) there");
  }
  const { call } = exits;
  const value = take(ctx, node, evaluate(ctx, node), exits.returns, `the result of ${call.name}`);
  const leave: Stmt = { kind: 'leave', span: ctx.span(whole), call };
  exits.values.set(leave, value);
  ctx.emit(leave);
}

export function lowerExpressionBody(ctx: Context, node: Expression): boolean {
  const returns = ctx.exits !== undefined && ctx.exits.returns !== 'void';
  const sound = ctx.recover(() => {
    if (returns) returnValue(ctx, node, node);
    else expressionStatement(ctx, node, node);
  });
  return returns || !sound;
}

// Expressions that stand as statements: calls and assignments.

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
    const value = evaluate(ctx, right);
    if (severalOf(target) !== undefined)
      requireSameShape(ctx, node, { node: left, value: target }, { node: right, value });
    assign(ctx, whole, target, right, value);
    return;
  }
  const before = { node: left, value: target };
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
  const current = { node: node.argument, value: target };
  const one = { node, value: { kind: 'literal', value: 1 } as const };
  assign(ctx, whole, target, node, binary(ctx, node, node.operator === '++' ? '+' : '-', current, one));
}

type Target = Value & {
  readonly kind: 'expr';
  readonly expr: Expr & { readonly kind: 'variable' | 'register' };
};

function assignable(ctx: Context, node: acorn.Node): Target {
  const pattern = node as acorn.Pattern | acorn.Expression;
  if (pattern.type === 'MemberExpression') return register(ctx, pattern);
  if (pattern.type !== 'Identifier') return unsupported(ctx, node, 'destructuring in an assignment');
  const value = evaluate(ctx, pattern);
  if (value.kind === 'expr' && value.expr.kind === 'variable' && value.expr.variable.mutable)
    return { ...value, expr: value.expr };
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
  return {
    kind: 'expr',
    expr: { kind: 'register', type: build.valueType(of.of), array: of.variable, index },
  };
}

function assign(
  ctx: Context,
  whole: acorn.Node,
  { expr: target }: Target,
  node: acorn.Node,
  given: Value,
): void {
  const span = ctx.span(whole);
  const of = target.kind === 'variable' ? target.variable : target.array;
  const value = valueAs(ctx, { node, value: given }, target.type, `for ${of.name}`);
  if (target.kind === 'variable') ctx.emit({ kind: 'assign', span, variable: of, value });
  else ctx.emit({ kind: 'assignRegister', span, array: of, index: target.index, value });
}
