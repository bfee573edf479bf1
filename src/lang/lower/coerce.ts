/** Constants take the type of what they meet; values never change theirs by themselves. */
import type { Node } from 'acorn';
import * as arithmetic from '../arithmetic.js';
import * as build from '../build.js';
import type { Expr } from '../ir.js';
import type { IrType } from '../types.js';
import type { Context } from './context.js';
import { type Argument, called, describe, severalOf, type Value } from './values.js';

/** A constant as a value of that type; an error where it does not fit. */
function literal(ctx: Context, node: Node, value: Value & { kind: 'literal' }, type: IrType): Expr {
  const name = build.valueName(type);
  const shown = String(value.value);
  if (name === 'f32') {
    if (typeof value.value === 'bigint') {
      const message = `${shown}n is an integer constant where an f32 is needed; write ${shown}`;
      return ctx.fail(node, 'HK301', message);
    }
    return build.constant('f32', Math.fround(value.value));
  }
  if (name === 'bool') {
    return ctx.fail(node, 'HK304', `${shown} is a number where a bool is needed; write a comparison`);
  }
  if (name === undefined || !arithmetic.isInteger(name)) {
    const advice = name === 'v16' || name === undefined ? '' : `; write g.${name}(g.f32(${shown}))`;
    return ctx.fail(node, 'HK301', `the constant ${shown} cannot be a ${build.showType(type)}${advice}`);
  }
  if (typeof value.value === 'number' && !Number.isInteger(value.value)) {
    return ctx.fail(node, 'HK303', `${shown} is no integer, but a ${name} is needed here`);
  }
  const integer = BigInt(value.value);
  if (!arithmetic.inRange(name, integer) && !(value.complement === true && integer < 0n)) {
    const message = `${shown} does not fit ${name}; if the wrapped bits are meant, write g.${name}(${shown})`;
    return ctx.fail(node, 'HK303', message);
  }
  return build.constant(name, arithmetic.wrap(name, integer));
}

/** The type of a constant that meets nothing: as docs/language.md says. */
function ownType(value: number | bigint): IrType {
  if (typeof value === 'bigint') return build.u64;
  if (!Number.isInteger(value)) return build.f32;
  return value < 0 ? build.i32 : build.u32;
}

/** A run-time value; a constant takes its own type. */
export function anyValue(ctx: Context, { node, value }: Argument): Expr {
  if (value.kind === 'expr') return value.expr;
  if (value.kind === 'literal') return literal(ctx, node, value, ownType(value.value));
  return ctx.fail(node, 'HK404', `${describe(value)} is used as a run-time value`);
}

export function valueAs(ctx: Context, given: Argument, type: IrType, what = 'here'): Expr {
  const { node, value } = given;
  if (value.kind === 'literal') return literal(ctx, node, value, type);
  const expr = anyValue(ctx, given);
  if (build.sameType(expr.type, type)) return expr;
  const wanted = build.showType(type);
  const hint = conversion(type, ctx.text(node), expr.type);
  const message = `\`${ctx.text(node)}\` is ${build.showType(expr.type)}, but ${wanted} is needed ${what}${hint && `; write ${hint}`}`;
  return ctx.fail(node, 'HK301', message);
}

/** The conversion to write, '' where there is none. */
function conversion(to: IrType, text: string, from: IrType): string {
  const name = build.valueName(to);
  const source = build.valueName(from);
  if (from.kind === 'pointer' && to.kind === 'pointer') {
    return from.space === to.space ? `${text}.as('${to.to}')` : '';
  }
  if (name === undefined || source === undefined || name === 'v16' || source === 'v16') return '';
  if (name === 'bool') return `${text} !== 0`;
  if (name === 'u8' || name === 'u16') return '';
  const opaque = (of: string): boolean => of === 'bf16' || of === 'f16' || of === 'e4m3';
  if (opaque(name) && source !== 'f32') return `g.${name}(g.f32(${text}))`;
  if (opaque(source) && name !== 'f32') return `g.${name}(g.f32(${text}))`;
  return `g.${name}(${text})`;
}

/** Both operands with one type: a constant takes the other's. */
export function unify(ctx: Context, node: Node, left: Argument, right: Argument): readonly [Expr, Expr] {
  if (left.value.kind === 'literal' && right.value.kind === 'literal') {
    const types = [ownType(left.value.value), ownType(right.value.value)];
    const type = [build.f32, build.u64, build.i32].find((one) => types.includes(one)) ?? build.u32;
    return [literal(ctx, left.node, left.value, type), literal(ctx, right.node, right.value, type)];
  }
  if (left.value.kind === 'literal') {
    const other = anyValue(ctx, right);
    return [literal(ctx, left.node, left.value, other.type), other];
  }
  const first = anyValue(ctx, left);
  if (right.value.kind === 'literal') return [first, literal(ctx, right.node, right.value, first.type)];
  const second = anyValue(ctx, right);
  if (build.sameType(first.type, second.type)) return [first, second];
  const hints = [
    conversion(first.type, ctx.text(right.node), second.type),
    conversion(second.type, ctx.text(left.node), first.type),
  ].filter((hint) => hint !== '');
  return ctx.fail(
    node,
    'HK301',
    `\`${ctx.text(left.node)}\` is ${build.showType(first.type)} and \`${ctx.text(right.node)}\` is ${build.showType(
      second.type,
    )}${hints.length > 0 ? `; write ${hints.join(' or ')}` : ''}`,
  );
}

/** `test ? then : otherwise` */
export function select(ctx: Context, node: Node, test: Expr, then: Argument, otherwise: Argument): Value {
  const expr = build.select(test, ...unify(ctx, node, then, otherwise));
  const [a, b] = [severalOf(then.value), severalOf(otherwise.value)];
  if (a === undefined || b === undefined) return { kind: 'expr', expr };
  requireSameShape(ctx, node, then, otherwise);
  const names = [...new Set([a.of.field.name, b.of.field.name])];
  return { kind: 'expr', expr, shape: names.length === 1 ? a : called(names.join(' or '), a) };
}

/** Indices of a pointer mean the same as those of another, which it stands for. */
export function requireSameShape(ctx: Context, node: Node, one: Argument, other: Argument): void {
  const [a, b] = [one, other].map(({ value }) => {
    const extents = severalOf(value)?.extents;
    return extents === undefined ? 'none' : `[${extents.join(', ')}]`;
  });
  if (a === b) return;
  const advice = 'index both to elements first, or give both the same shape';
  const texts = [one, other].map((of) => `\`${ctx.text(of.node)}\``);
  ctx.fail(node, 'HK301', `${texts[0]} has the shape ${a} and ${texts[1]} ${b}; ${advice}`);
}

export function condition(ctx: Context, given: Argument): Expr {
  const { node, value } = given;
  if (value.kind === 'literal') {
    const message = `a condition must be a bool, but \`${ctx.text(node)}\` is a number; compare it`;
    return ctx.fail(node, 'HK304', message);
  }
  const expr = anyValue(ctx, given);
  if (build.valueName(expr.type) === 'bool') return expr;
  const hint = build.valueName(expr.type) === undefined ? '' : `; write ${ctx.text(node)} !== 0`;
  const message = `a condition must be a bool, but \`${ctx.text(node)}\` is ${build.showType(expr.type)}${hint}`;
  return ctx.fail(node, 'HK304', message);
}

/** A non-negative integer known to the compiler, at most `max`. */
export function constantInteger(ctx: Context, { node, value }: Argument, what: string, max: number): number {
  const known =
    value.kind === 'literal'
      ? value.value
      : value.kind === 'expr' && value.expr.kind === 'const' && typeof value.expr.value !== 'boolean'
        ? value.expr.value
        : undefined;
  if (known === undefined) {
    const message = `${what} must be a constant, but \`${ctx.text(node)}\` is known only at run time`;
    return ctx.fail(node, 'HK501', message);
  }
  const number = Number(known);
  if (!Number.isInteger(number) || number < 0 || number > max) {
    return ctx.fail(node, 'HK502', `${what} is ${known}; it must be an integer from 0 to ${max}`);
  }
  return number;
}

export function constantText<T extends string>(
  ctx: Context,
  { node, value }: Argument,
  what: string,
  allowed: readonly T[],
): T {
  if (value.kind !== 'string') {
    return ctx.fail(node, 'HK501', `${what} must be one of ${list(allowed)}, written as text`);
  }
  const found = allowed.find((one) => one === value.value);
  if (found === undefined) {
    return ctx.fail(node, 'HK305', `${what} is '${value.value}'; it must be one of ${list(allowed)}`);
  }
  return found;
}

const list = (names: readonly string[]): string => names.map((name) => `'${name}'`).join(', ');
