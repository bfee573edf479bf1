/** Lowers expressions: what is known folds, what is pure becomes an `Expr`, effects are emitted in source order. */
import type { CallExpression, Expression, MemberExpression, Node, Property, SpreadElement } from 'acorn';
import { isInteger } from '../arithmetic.js';
import * as build from '../build.js';
import type { Expr, Stmt } from '../ir.js';
import { someExpression, someStatement, writtenBy } from '../walk.js';
import { Call } from './call.js';
import { anyValue, condition, select } from './coerce.js';
import { type Context, freeze, type Into, Poisoned } from './context.js';
import { callForeign } from './foreign.js';
import { callDevice } from './inline.js';
import { intrinsics, unroll } from './intrinsics.js';
import { indexed, named } from './members.js';
import { binary } from './operators.js';
import { indexShape, tileMethod, viewAs } from './shapes.js';
import { habit, propertyName, unsupported, wording } from './syntax.js';
import { type Argument, expression, type MethodName, shown, type Value } from './values.js';

/** `into`: where the result goes if the expression is one effect (see Context.effect). */
export function evaluate(ctx: Context, node: Node, into?: Into): Value {
  const expr = node as Expression | SpreadElement;
  switch (expr.type) {
    case 'Identifier':
      return name(ctx, expr, expr.name);
    case 'Literal':
      return literal(ctx, expr, expr.value);
    case 'UnaryExpression':
      return unary(ctx, expr, expr.operator, expr.argument);
    case 'BinaryExpression': {
      if (expr.left.type === 'PrivateIdentifier') return unsupported(ctx, expr.left, 'a private name');
      const [left, right] = inOrder(ctx, [expr.left, expr.right]);
      return binary(ctx, expr, expr.operator, left!, right!);
    }
    case 'LogicalExpression':
      return logical(ctx, expr, expr.operator, expr.left, expr.right);
    case 'ConditionalExpression': {
      const test = condition(ctx, evaluated(ctx, expr.test));
      if (test.kind === 'const') return evaluate(ctx, test.value ? expr.consequent : expr.alternate, into);
      const then = oneSided(ctx, expr.consequent);
      const otherwise = oneSided(ctx, expr.alternate);
      return select(ctx, expr, test, then, otherwise);
    }
    case 'MemberExpression':
      return member(ctx, expr);
    case 'CallExpression':
      return call(ctx, expr, into);
    case 'ArrayExpression': {
      const nodes = expr.elements.map((item) => item ?? unsupported(ctx, expr, 'an array with holes'));
      return { kind: 'list', items: inOrder(ctx, nodes).map(({ value }) => value), what: 'an array' };
    }
    case 'ObjectExpression':
      return object(ctx, expr, expr.properties);
    case 'TemplateLiteral': {
      const text = expr.quasis[0]?.value.cooked;
      if (expr.expressions.length > 0 || typeof text !== 'string')
        return unsupported(ctx, expr, 'a template');
      return { kind: 'string', value: text };
    }
    case 'AssignmentExpression':
    case 'UpdateExpression':
      return unsupported(ctx, expr, 'an assignment inside an expression', 'make it a statement of its own');
    case 'FunctionExpression':
    case 'ArrowFunctionExpression':
      return unsupported(ctx, expr, 'a nested function', 'make it a device() and pass it through `using`');
    case 'ChainExpression':
      return unsupported(ctx, expr, 'optional chaining');
    default:
      return unsupported(ctx, expr, wording(expr.type));
  }
}

export const evaluated = (ctx: Context, node: Node): Argument => ({ node, value: evaluate(ctx, node) });

/**
 * Operands from left to right, behind those evaluated `before`. One that reads registers keeps what it read where a
 * later one, calling a device function, writes them.
 */
export function inOrder(ctx: Context, nodes: readonly Node[], before: readonly Argument[] = []): Argument[] {
  let done = [...before];
  for (const node of nodes) {
    const first = ctx.emitted;
    const value = evaluate(ctx, node);
    if (ctx.emitted > first) {
      const emitted = ctx.takeBack(first);
      done = done.map((one) =>
        readsWritten(one.value, emitted) ? { ...one, value: freeze(ctx, one.node, 'kept', one.value) } : one,
      );
      for (const stmt of emitted) ctx.emit(stmt);
    }
    done.push({ node, value });
  }
  return done;
}

/** Does a value still read a register array that these statements write? */
function readsWritten(value: Value, statements: readonly Stmt[]): boolean {
  const inside = (expr: Expr): boolean =>
    someExpression(
      expr,
      (part) =>
        part.kind === 'register' && someStatement(statements, (stmt) => writtenBy(stmt).includes(part.array)),
    );
  switch (value.kind) {
    case 'expr':
      return inside(value.expr);
    case 'window':
      return inside(value.rank);
    case 'list':
      return value.items.some((item) => readsWritten(item, statements));
    case 'record':
      return [...value.entries.values()].some((entry) => readsWritten(entry, statements));
    case 'method':
      return readsWritten(value.of, statements);
    default:
      return false;
  }
}

function name(ctx: Context, node: Node, of: string): Value {
  const binding = ctx.find(of);
  if (binding === undefined) {
    const message = `\`${of}\` is neither declared here nor a parameter. A body is closed: pass it through \`using\` (known when the kernel is made) or \`params\` (known at launch)${habit(of)}`;
    return ctx.fail(node, 'HK101', message);
  }
  if (binding.kind === 'poison') throw new Poisoned();
  return binding;
}

function literal(ctx: Context, node: Node, value: unknown): Value {
  if (typeof value === 'number' || typeof value === 'bigint') return { kind: 'literal', value };
  if (typeof value === 'boolean') return expression(build.boolean(value));
  if (typeof value === 'string') return { kind: 'string', value };
  return unsupported(ctx, node, value === null ? 'null' : 'a regular expression');
}

function unary(ctx: Context, node: Node, op: string, argument: Expression): Value {
  if (op !== '-' && op !== '~' && op !== '!' && op !== '+') return unsupported(ctx, node, op);
  const value = evaluate(ctx, argument);
  if (value.kind === 'literal') {
    if (op === '+' && typeof value.value === 'number') return value;
    if (op === '-') return { kind: 'literal', value: -value.value };
    // Minifiers write !0 for true.
    if (op === '!' && argument.type === 'Literal') return expression(build.boolean(!value.value));
    if (op === '~' && (typeof value.value === 'bigint' || Number.isInteger(value.value))) {
      const inverted = ~BigInt(value.value);
      return {
        kind: 'literal',
        value: typeof value.value === 'bigint' ? inverted : Number(inverted),
        complement: true,
      };
    }
  }
  if (op === '!') return expression(build.unary('!', condition(ctx, { node: argument, value })));
  const operand = anyValue(ctx, { node: argument, value });
  const type = build.valueName(operand.type) ?? '';
  if (op === '+' || !(isInteger(type) || (op === '-' && type === 'f32'))) {
    return ctx.fail(node, 'HK302', `${op} does not apply to ${build.showType(operand.type)}`);
  }
  return expression(build.unary(op, operand));
}

function logical(ctx: Context, node: Node, op: string, leftNode: Expression, rightNode: Expression): Value {
  if (op !== '&&' && op !== '||') return unsupported(ctx, node, `the operator ${op}`);
  const left = condition(ctx, evaluated(ctx, leftNode));
  if (left.kind === 'const') {
    // The other side is either dead, and not looked at, or all there is.
    if ((left.value === true) === (op === '||')) return expression(left);
    return expression(condition(ctx, evaluated(ctx, rightNode)));
  }
  const right = oneSided(ctx, rightNode);
  const test = condition(ctx, right);
  if (test.kind === 'const') {
    return expression((test.value === true) === (op === '||') ? test : left);
  }
  return expression(build.binary(op, left, test));
}

/** An operand that is evaluated only sometimes: it may not have effects, for those happen always once hoisted. */
function oneSided(ctx: Context, node: Expression): Argument {
  let value: Value = { kind: 'void' };
  const emitted = ctx.collect(() => {
    value = evaluate(ctx, node);
  });
  const computes = emitted.every((stmt) => stmt.kind === 'let' && stmt.init !== null);
  if (computes) for (const stmt of emitted) ctx.emit(stmt);
  else {
    const message = `\`${ctx.text(node)}\` touches memory or other threads on one side of &&, || or ?: only; use an if, or make it a const before`;
    ctx.fail(node, 'HK601', message);
  }
  return { node, value };
}

function object(ctx: Context, node: Node, properties: readonly (Property | SpreadElement)[]): Value {
  const nodes = new Map<string, Node>();
  for (const property of properties) {
    if (property.type === 'SpreadElement') return unsupported(ctx, property, 'spread');
    if (property.kind !== 'init' || property.computed || property.method) {
      return unsupported(ctx, property, 'a computed or active property');
    }
    nodes.set(propertyName(ctx, property.key), property.value);
  }
  const values = inOrder(ctx, [...nodes.values()]);
  const entries = new Map([...nodes.keys()].map((key, i) => [key, values[i]!.value] as const));
  return { kind: 'record', entries, nodes, what: `the object \`${ctx.text(node)}\`` };
}

function member(ctx: Context, node: MemberExpression): Value {
  if (node.object.type === 'Super' || node.property.type === 'PrivateIdentifier') {
    return unsupported(ctx, node, 'private names and super');
  }
  const of = evaluate(ctx, node.object);
  if (!node.computed) return named(ctx, node, of, propertyName(ctx, node.property));
  const key = evaluate(ctx, node.property);
  return key.kind === 'string' ? named(ctx, node, of, key.value) : indexed(ctx, node, of, key);
}

function call(ctx: Context, node: CallExpression, into: Into): Value {
  if (node.callee.type === 'Super') return unsupported(ctx, node, 'super');
  const called = evaluated(ctx, node.callee);
  if (called.value.kind === 'intrinsic' && called.value.name === unroll)
    return unsupported(ctx, node, 'g.unroll outside a loop head', 'write for (const i of g.unroll(n))');
  const [{ value: callee }, ...args] = inOrder(ctx, node.arguments, [called]) as [Argument, ...Argument[]];
  switch (callee.kind) {
    case 'intrinsic':
      return intrinsics[callee.name]!(new Call(ctx, node, `g.${callee.name}`, args, into));
    case 'method':
      return method(new Call(ctx, node, ctx.text(node.callee), args, into), callee.of, callee.name);
    case 'device': {
      const { definition, name } = callee;
      const call = new Call(ctx, node, name, args, into);
      return definition.foreign === undefined
        ? callDevice(call, definition)
        : callForeign(call, definition, definition.foreign);
    }
    default:
      return ctx.fail(node, 'HK702', `\`${ctx.text(node.callee)}\` is ${shown(callee)}, not a function`);
  }
}

function method(call: Call, of: Value, name: MethodName): Value {
  if (of.kind === 'handle' && of.variable.type.kind === 'peers') {
    const { variable } = of;
    call.expect('rank');
    return { kind: 'window', variable, layout: of.variable.type.layout, rank: call.as(0, build.u32) };
  }
  const pointer = anyValue(call.ctx, { node: call.node, value: of });
  if (pointer.type.kind === 'pointer' && pointer.type.tile !== undefined)
    return tileMethod(call, pointer, pointer.type.tile, name);
  const shape = of.kind === 'expr' ? of.shape : undefined;
  if (name === 'as') return viewAs(call, pointer, shape);
  if (shape !== undefined) return indexShape(call, pointer, shape);
  call.expect('index');
  const index: Expr = call.oneOf(0, 'u32', 'i32');
  return expression({ kind: 'offset', type: pointer.type, pointer, index });
}
