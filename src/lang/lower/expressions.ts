/** Lowers expressions: what is known folds, what is pure becomes an `Expr`, effects are emitted in source order. */
import type {
  BinaryOperator,
  CallExpression,
  Expression,
  MemberExpression,
  Node,
  Property,
  SpreadElement,
} from 'acorn';
import { isInteger } from '../arithmetic.js';
import * as build from '../build.js';
import { findField } from '../header.js';
import type { BinaryOp, Expr } from '../ir.js';
import { type Argument, Call } from './call.js';
import { anyValue, condition, constantInteger, unify } from './coerce.js';
import { type Context, type Into, Poisoned } from './context.js';
import { callDevice } from './devices.js';
import { builtins, groups, intrinsics, placed } from './intrinsics.js';
import { suggest } from './suggest.js';
import { describe, expression, type Value } from './values.js';

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
      const left = { node: expr.left, value: evaluate(ctx, expr.left) };
      const right = { node: expr.right, value: evaluate(ctx, expr.right) };
      return binary(ctx, expr, expr.operator, left, right);
    }
    case 'LogicalExpression':
      return logical(ctx, expr, expr.operator, expr.left, expr.right);
    case 'ConditionalExpression': {
      const test = condition(ctx, expr.test, evaluate(ctx, expr.test));
      if (test.kind === 'const') return evaluate(ctx, test.value ? expr.consequent : expr.alternate, into);
      const then = oneSided(ctx, expr.consequent);
      const otherwise = oneSided(ctx, expr.alternate);
      const [a, b] = unify(ctx, expr, then, otherwise);
      return expression(build.select(test, a, b));
    }
    case 'MemberExpression':
      return member(ctx, expr);
    case 'CallExpression':
      return call(ctx, expr, into);
    case 'ArrayExpression': {
      const items = expr.elements.map((item) =>
        item === null ? unsupported(ctx, expr, 'an array with holes') : evaluate(ctx, item),
      );
      return { kind: 'list', items, what: 'an array' };
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

/** 'ThisExpression' → 'this expression' */
export const wording = (type: string): string => type.replace(/(?!^)([A-Z])/g, ' $1').toLowerCase();

export function unsupported(ctx: Context, node: Node, what: string, advice?: string): never {
  return ctx.fail(
    node,
    'HK102',
    `the kernel language does not have this: ${what}${advice === undefined ? '' : `; ${advice}`}`,
  );
}

function name(ctx: Context, node: Node, of: string): Value {
  const binding = ctx.find(of);
  if (binding === undefined) {
    return ctx.fail(
      node,
      'HK101',
      `\`${of}\` is neither declared here nor a parameter. A body is closed: pass it through \`using\` (known when the kernel is made) or \`params\` (known at launch)`,
    );
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
  if (op === '!') return expression(build.unary('!', condition(ctx, argument, value)));
  const operand = anyValue(ctx, argument, value);
  const type = build.valueName(operand.type) ?? '';
  if (op === '+' || !(isInteger(type) || (op === '-' && type === 'f32'))) {
    return ctx.fail(node, 'HK302', `${op} does not apply to ${build.showType(operand.type)}`);
  }
  return expression(build.unary(op, operand));
}

const operators: Partial<Record<BinaryOperator, BinaryOp>> = {
  '===': '==',
  '!==': '!=',
  '>>>': '>>',
};
const plainOperators = ['<', '<=', '>', '>=', '<<', '>>', '+', '-', '*', '/', '%', '|', '^', '&'] as const;

export function binary(
  ctx: Context,
  node: Node,
  operator: BinaryOperator,
  left: Argument,
  right: Argument,
): Value {
  const op = operators[operator] ?? plainOperators.find((one) => one === operator);
  if (op === undefined) {
    const advice = operator === '==' || operator === '!=' ? `write ${operator}=` : undefined;
    return unsupported(ctx, node, `the operator ${operator}`, advice);
  }
  if (left.value.kind === 'literal' && right.value.kind === 'literal') {
    return constants(ctx, node, operator, op, left.value.value, right.value.value);
  }
  if (left.value.kind === 'string' && right.value.kind === 'string' && (op === '==' || op === '!=')) {
    return expression(build.boolean((left.value.value === right.value.value) === (op === '==')));
  }
  if (op === '<<' || op === '>>') return shift(ctx, node, operator, op, left, right);
  const [a, b] = unify(ctx, node, left, right);
  const type = build.valueName(a.type) ?? '';
  const applies =
    op === '==' || op === '!='
      ? isInteger(type) || type === 'f32' || type === 'bool'
      : op === '&' || op === '|' || op === '^' || op === '%'
        ? isInteger(type)
        : isInteger(type) || type === 'f32';
  if (!applies) {
    const advice =
      type === 'bool' && (op === '&' || op === '|')
        ? `; write ${op}${op}`
        : type === 'bf16' || type === 'f16' || type === 'e4m3'
          ? `; compute with g.f32(${ctx.text(left.node)})`
          : a.type.kind === 'pointer'
            ? '; move a pointer with .at(index)'
            : '';
    return ctx.fail(node, 'HK302', `${operator} does not apply to ${build.showType(a.type)}${advice}`);
  }
  warnUnsigned(ctx, node, op, left, right, type);
  return expression(build.binary(op, a, b));
}

/** `i >= 0` never ends a loop over an unsigned i. Only for a written 0: a `using` value may well be 0. */
function warnUnsigned(
  ctx: Context,
  node: Node,
  op: BinaryOp,
  left: Argument,
  right: Argument,
  type: string,
): void {
  if (type !== 'u32' && type !== 'u64') return;
  const zero = (side: Argument): boolean =>
    (side.node as Expression).type === 'Literal' && side.value.kind === 'literal' && !side.value.value;
  const rightAlways = zero(right) && (op === '>=' || op === '<');
  const leftAlways = zero(left) && (op === '<=' || op === '>');
  if (!rightAlways && !leftAlways) return;
  const always = op === '>=' || op === '<=';
  ctx.fail(
    node,
    'HK308',
    `\`${ctx.text(node)}\` is always ${always}, for the other side is ${type}; use an i32 if it can be negative`,
  );
}

function shift(
  ctx: Context,
  node: Node,
  operator: BinaryOperator,
  op: '<<' | '>>',
  left: Argument,
  right: Argument,
): Value {
  const value = anyValue(ctx, left.node, left.value);
  const type = build.valueName(value.type) ?? '';
  if (!isInteger(type) || (operator === '>>>' && type !== 'u32')) {
    const advice =
      operator === '>>>' && isInteger(type) ? '; >>> is for u32 (>> of a u64 is logical already)' : '';
    return ctx.fail(node, 'HK302', `${operator} does not apply to ${build.showType(value.type)}${advice}`);
  }
  if (right.value.kind === 'literal') {
    const count = constantInteger(ctx, right.node, right.value, 'the shift count', type === 'u64' ? 63 : 31);
    return expression(build.binary(op, value, build.constant('u32', count)));
  }
  const count = anyValue(ctx, right.node, right.value);
  if (!isInteger(build.valueName(count.type) ?? '')) {
    return ctx.fail(
      right.node,
      'HK302',
      `a shift count must be an integer, not ${build.showType(count.type)}`,
    );
  }
  return expression(build.binary(op, value, build.convert(build.u32, count)));
}

/** Two constants without a width: exact integers, or doubles as soon as one is fractional. */
function constants(
  ctx: Context,
  node: Node,
  operator: BinaryOperator,
  op: BinaryOp,
  a: number | bigint,
  b: number | bigint,
): Value {
  if (build.isComparison(op)) {
    const equal = a === b || (typeof a !== typeof b && Number(a) === Number(b));
    const results: Partial<Record<BinaryOp, boolean>> = {
      '==': equal,
      '!=': !equal,
      '<': a < b,
      '<=': a <= b,
      '>': a > b,
      '>=': a >= b,
    };
    return expression(build.boolean(results[op] === true));
  }
  if (typeof a !== typeof b) {
    return ctx.fail(
      node,
      'HK301',
      `\`${ctx.text(node)}\` mixes a number and a bigint; write both with n or both without`,
    );
  }
  if (typeof a === 'bigint' || (Number.isSafeInteger(a) && Number.isSafeInteger(b))) {
    const result = integers(ctx, node, operator, op, BigInt(a), BigInt(b));
    return { kind: 'literal', value: typeof a === 'bigint' ? result : Number(result) };
  }
  const [x, y] = [Number(a), Number(b)];
  const results: Partial<Record<BinaryOp, number>> = { '+': x + y, '-': x - y, '*': x * y, '/': x / y };
  const result = results[op];
  if (result === undefined) {
    return ctx.fail(node, 'HK302', `${operator} does not apply to the constants ${a} and ${b}`);
  }
  return { kind: 'literal', value: result };
}

function integers(
  ctx: Context,
  node: Node,
  operator: BinaryOperator,
  op: BinaryOp,
  a: bigint,
  b: bigint,
): bigint {
  switch (op) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
    case '%':
      if (b === 0n) return ctx.fail(node, 'HK502', `\`${ctx.text(node)}\` divides by the constant 0`);
      if (op === '%') return a % b;
      // An author may mean 2 or 2.5 by 5 / 2: TypeScript says one thing, an integer type another.
      if (a % b !== 0n) {
        return ctx.fail(
          node,
          'HK307',
          `${a} / ${b} has a remainder; write g.u32(${a}) / ${b} for ${a / b}, or g.f32(${a}) / ${b} for the fraction`,
        );
      }
      return a / b;
    case '&':
      return a & b;
    case '|':
      return a | b;
    case '^':
      return a ^ b;
    default: {
      if (b < 0n || b > 63n)
        return ctx.fail(node, 'HK502', `the shift count is ${b}; it must be from 0 to 63`);
      if (operator === '>>>' && a < 0n) {
        return ctx.fail(node, 'HK302', '>>> does not apply to a negative constant without a width');
      }
      return op === '<<' ? a << b : a >> b;
    }
  }
}

function logical(ctx: Context, node: Node, op: string, leftNode: Expression, rightNode: Expression): Value {
  if (op !== '&&' && op !== '||') return unsupported(ctx, node, `the operator ${op}`);
  const left = condition(ctx, leftNode, evaluate(ctx, leftNode));
  if (left.kind === 'const') {
    // The other side is either dead, and not looked at, or all there is.
    if ((left.value === true) === (op === '||')) return expression(left);
    return expression(condition(ctx, rightNode, evaluate(ctx, rightNode)));
  }
  const right = oneSided(ctx, rightNode);
  const test = condition(ctx, right.node, right.value);
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
  if (emitted.length > 0) {
    ctx.fail(
      node,
      'HK601',
      `\`${ctx.text(node)}\` touches memory or other threads on one side of &&, || or ?: only; use an if, or make it a const before`,
    );
  }
  return { node, value };
}

function object(ctx: Context, node: Node, properties: readonly (Property | SpreadElement)[]): Value {
  const entries = new Map<string, Value>();
  const nodes = new Map<string, Node>();
  for (const property of properties) {
    if (property.type === 'SpreadElement') return unsupported(ctx, property, 'spread');
    if (property.kind !== 'init' || property.computed || property.method) {
      return unsupported(ctx, property, 'a computed or active property');
    }
    const key = propertyName(ctx, property.key);
    entries.set(key, evaluate(ctx, property.value));
    nodes.set(key, property.value);
  }
  return { kind: 'record', entries, nodes, what: `the object \`${ctx.text(node)}\`` };
}

export function propertyName(ctx: Context, key: Node): string {
  const node = key as Expression;
  if (node.type === 'Identifier') return node.name;
  if (node.type === 'Literal' && typeof node.value === 'string') return node.value;
  return unsupported(ctx, key, 'this kind of property name');
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

/** `of.key` */
export function named(ctx: Context, node: Node, of: Value, key: string): Value {
  switch (of.kind) {
    case 'record': {
      const entry = of.entries.get(key);
      return entry ?? missing(ctx, node, of.what, key, [...of.entries.keys()]);
    }
    case 'list':
      if (key === 'length') return { kind: 'literal', value: of.items.length };
      return missing(ctx, node, of.what, key, ['length']);
    case 'registers':
      if (key === 'length') return { kind: 'literal', value: of.length };
      return missing(ctx, node, describe(of), key, ['length']);
    case 'gpu':
      return gpuMember(ctx, node, of.path === '' ? key : `${of.path}.${key}`);
    case 'peers':
      if (key === 'at') return { kind: 'method', of, name: 'at' };
      return ctx.fail(node, 'HK402', `say which rank's window: ${of.variable.name}.at(rank).${key}`);
    case 'window':
      return windowField(ctx, node, of, key);
    case 'expr':
      if (of.expr.type.kind === 'pointer' && (key === 'at' || key === 'as')) {
        return { kind: 'method', of, name: key };
      }
      return missing(
        ctx,
        node,
        build.showType(of.expr.type),
        key,
        of.expr.type.kind === 'pointer' ? ['at', 'as'] : [],
      );
    default:
      return missing(ctx, node, describe(of), key, []);
  }
}

function missing(ctx: Context, node: Node, what: string, key: string, known: readonly string[]): never {
  const has = known.length === 0 ? '' : `; it has ${known.slice(0, 12).join(', ')}`;
  return ctx.fail(node, 'HK402', `${what} has no member ${key}${suggest(key, known)}${has}`);
}

function gpuMember(ctx: Context, node: Node, path: string): Value {
  const builtin = Object.hasOwn(builtins, path) ? builtins[path] : undefined;
  if (builtin !== undefined) return expression({ kind: 'builtin', type: build.u32, name: builtin });
  if (groups.includes(path)) return { kind: 'gpu', path };
  if (Object.hasOwn(intrinsics, path) || placed.includes(path)) return { kind: 'intrinsic', name: path };
  const known = [...Object.keys(intrinsics), ...Object.keys(builtins), ...placed];
  return ctx.fail(node, 'HK401', `there is no g.${path}${suggest(path, known)}`);
}

function windowField(ctx: Context, node: Node, of: Value & { kind: 'window' }, key: string): Value {
  const { variable, layout, rank } = of;
  const address = (name: string): Value | undefined => {
    const field = findField(layout, name);
    if (field === undefined) return undefined;
    const type = build.pointerType(field.type, 'global');
    return expression({ kind: 'field', type, window: variable, rank, field });
  };
  const single = address(key);
  if (single !== undefined) return single;
  const items: Value[] = [];
  for (let item = address(`${key}_0`); item !== undefined; item = address(`${key}_${items.length}`)) {
    items.push(item);
  }
  if (items.length > 0) return { kind: 'list', items, what: `the fields ${layout.name}.${key}` };
  const known = [...new Set(layout.fields.map((field) => field.name.replace(/_\d+$/, '')))];
  return missing(ctx, node, `the layout ${layout.name}`, key, known);
}

/** `of[key]` with a key that is not text */
function indexed(ctx: Context, node: MemberExpression, of: Value, key: Value): Value {
  if (of.kind === 'list') {
    const index = constantInteger(ctx, node.property, key, `the index into ${of.what}`, of.items.length - 1);
    return of.items[index]!;
  }
  if (of.kind === 'registers') {
    return expression({
      kind: 'register',
      type: build.valueType(of.of),
      array: of.variable,
      index: registerIndex(ctx, node.property, of, key),
    });
  }
  const advice =
    of.kind === 'expr' && of.expr.type.kind === 'pointer' ? '; write g.load(pointer.at(index))' : '';
  const was = of.kind === 'expr' ? build.showType(of.expr.type) : describe(of);
  return ctx.fail(node, 'HK402', `${was} has no elements${advice}`);
}

export function registerIndex(
  ctx: Context,
  node: Node,
  of: Value & { kind: 'registers' },
  key: Value,
): number {
  if (key.kind === 'expr' && key.expr.kind !== 'const') {
    return ctx.fail(
      node,
      'HK501',
      `registers have no addresses, so the index into ${of.variable.name} must be a constant; loop with g.unroll`,
    );
  }
  return constantInteger(ctx, node, key, `the index into ${of.variable.name}`, of.length - 1);
}

function call(ctx: Context, node: CallExpression, into: Into): Value {
  if (node.callee.type === 'Super') return unsupported(ctx, node, 'super');
  const callee = evaluate(ctx, node.callee);
  if (callee.kind === 'intrinsic' && placed.includes(callee.name)) return misplaced(ctx, node, callee.name);
  const args = node.arguments.map((argument): Argument => {
    if (argument.type === 'SpreadElement') return unsupported(ctx, argument, 'spread');
    return { node: argument, value: evaluate(ctx, argument) };
  });
  switch (callee.kind) {
    case 'intrinsic':
      return intrinsics[callee.name]!(new Call(ctx, node, `g.${callee.name}`, args, into));
    case 'method':
      return method(new Call(ctx, node, ctx.text(node.callee), args, into), callee.of, callee.name);
    case 'device':
      return callDevice(new Call(ctx, node, callee.name, args, into), callee.definition);
    default: {
      const was = callee.kind === 'expr' ? build.showType(callee.expr.type) : describe(callee);
      return ctx.fail(node, 'HK702', `\`${ctx.text(node.callee)}\` is ${was}, not a function`);
    }
  }
}

function misplaced(ctx: Context, node: Node, name: string): never {
  if (name === 'shared') {
    return ctx.fail(
      node,
      'HK602',
      'declare shared memory as `const name = g.shared(type, length)` at the top level of a kernel',
    );
  }
  if (name === 'registers') {
    return ctx.fail(node, 'HK603', 'declare registers as `const name = g.registers(type, length)`');
  }
  return unsupported(ctx, node, 'g.unroll outside a loop head', 'write for (const i of g.unroll(n))');
}

function method(call: Call, of: Value, name: 'at' | 'as'): Value {
  if (name === 'as') {
    call.expect('type');
    const to = call.memoryName(0);
    const pointer = anyValue(call.ctx, call.node, of);
    const space = pointer.type.kind === 'pointer' ? pointer.type.space : 'global';
    const type = build.pointerType(to, space);
    return expression(build.sameType(type, pointer.type) ? pointer : { kind: 'view', type, pointer });
  }
  if (of.kind === 'peers') {
    call.expect('rank');
    return { kind: 'window', variable: of.variable, layout: of.layout, rank: call.as(0, build.u32) };
  }
  call.expect('index');
  const pointer = anyValue(call.ctx, call.node, of);
  const index: Expr = call.oneOf(0, 'u32', 'i32');
  return expression({ kind: 'offset', type: pointer.type, pointer, index });
}
