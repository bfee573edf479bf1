/** Binary operators, on constants without a width and on run-time values. */
import type { BinaryOperator, Node } from 'acorn';
import * as arithmetic from '../arithmetic.js';
import * as build from '../build.js';
import type { BinaryOp } from '../ir.js';
import { anyValue, constantInteger, unify } from './coerce.js';
import type { Context } from './context.js';
import { unsupported } from './syntax.js';
import { type Argument, expression, type Value } from './values.js';

const operators: Partial<Record<BinaryOperator, BinaryOp>> = {
  ...{ '===': '==', '!==': '!=', '<': '<', '<=': '<=', '>': '>', '>=': '>=' },
  ...{ '+': '+', '-': '-', '*': '*', '/': '/', '%': '%' },
  ...{ '|': '|', '^': '^', '&': '&', '<<': '<<', '>>': '>>', '>>>': '>>' },
};

export function binary(
  ctx: Context,
  node: Node,
  operator: BinaryOperator,
  left: Argument,
  right: Argument,
): Value {
  const op = operators[operator];
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
      ? arithmetic.isInteger(type) || type === 'f32' || type === 'bool'
      : op === '&' || op === '|' || op === '^' || op === '%'
        ? arithmetic.isInteger(type)
        : arithmetic.isInteger(type) || type === 'f32';
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
  return expression(build.binary(op, a, b));
}

function shift(
  ctx: Context,
  node: Node,
  operator: BinaryOperator,
  op: '<<' | '>>',
  left: Argument,
  right: Argument,
): Value {
  const value = anyValue(ctx, left);
  const type = build.valueName(value.type) ?? '';
  if (!arithmetic.isInteger(type) || (operator === '>>>' && type !== 'u32')) {
    const advice =
      operator === '>>>' && arithmetic.isInteger(type)
        ? '; >>> is for u32 (>> of a u64 is logical already)'
        : '';
    return ctx.fail(node, 'HK302', `${operator} does not apply to ${build.showType(value.type)}${advice}`);
  }
  if (right.value.kind === 'literal') {
    const count = constantInteger(ctx, right, 'the shift count', type === 'u64' ? 63 : 31);
    return expression(build.binary(op, value, build.constant('u32', count)));
  }
  const count = anyValue(ctx, right);
  if (!arithmetic.isInteger(build.valueName(count.type) ?? '')) {
    const message = `a shift count must be an integer, not ${build.showType(count.type)}`;
    return ctx.fail(right.node, 'HK302', message);
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
  if (arithmetic.isComparison(op)) {
    const equal = a === b || (typeof a !== typeof b && Number(a) === Number(b));
    const holds = op === '==' ? equal : op === '!=' ? !equal : arithmetic.comparisons[op](a, b);
    return expression(build.boolean(holds));
  }
  if (typeof a !== typeof b) {
    const message = `\`${ctx.text(node)}\` mixes a number and a bigint; write both with n or both without`;
    return ctx.fail(node, 'HK301', message);
  }
  if (typeof a === 'bigint' || (Number.isSafeInteger(a) && Number.isSafeInteger(b))) {
    const result = ofIntegers(ctx, node, operator, op, BigInt(a), BigInt(b));
    return { kind: 'literal', value: typeof a === 'bigint' ? result : Number(result) };
  }
  if (!Object.hasOwn(arithmetic.floats, op))
    return ctx.fail(node, 'HK302', `${operator} does not apply to the constants ${a} and ${b}`);
  return { kind: 'literal', value: arithmetic.floats[op as arithmetic.FloatOp](Number(a), Number(b)) };
}

function ofIntegers(
  ctx: Context,
  node: Node,
  operator: BinaryOperator,
  op: BinaryOp,
  a: bigint,
  b: bigint,
): bigint {
  if ((op === '/' || op === '%') && b === 0n)
    ctx.fail(node, 'HK502', `\`${ctx.text(node)}\` divides by the constant 0`);
  // An author may mean 2 or 2.5 by 5 / 2: TypeScript says one thing, an integer type another.
  if (op === '/' && a % b !== 0n)
    ctx.fail(
      node,
      'HK307',
      `${a} / ${b} has a remainder; write g.u32(${a}) / ${b} for ${a / b}, or g.f32(${a}) / ${b} for the fraction`,
    );
  if ((op === '<<' || op === '>>') && (b < 0n || b > 63n))
    ctx.fail(node, 'HK502', `the shift count is ${b}; it must be from 0 to 63`);
  if (operator === '>>>' && a < 0n)
    ctx.fail(node, 'HK302', '>>> does not apply to a negative constant without a width');
  return arithmetic.integers[op as arithmetic.IntegerOp](a, b);
}
