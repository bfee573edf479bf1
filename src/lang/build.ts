/** Building IR: types by name, and expressions that fold themselves when their operands are constants. */
import * as arithmetic from './arithmetic.js';
import type { BinaryOp, Expr, UnaryOp } from './ir.js';
import { computePure, type PureFunction } from './operations/pure.js';
import { showTile } from './tile.js';
import type { ComputeName, IrType, MemoryName, Space, Tile, ValueName } from './types.js';

const computeNames: readonly string[] = ['i32', 'u32', 'u64', 'f32', 'bool'] satisfies ComputeName[];
export const isComputeName = (name: string): name is ComputeName => computeNames.includes(name);

export const valueType = (name: ValueName): IrType => ({ kind: 'value', name });
export const i32: IrType = valueType('i32');
export const u32: IrType = valueType('u32');
export const u64: IrType = valueType('u64');
export const f32: IrType = valueType('f32');
export const bool: IrType = valueType('bool');
export const v16: IrType = valueType('v16');
export const voidType: IrType = { kind: 'void' };
export const pointerType = (to: MemoryName, space: Space): IrType => ({
  kind: 'pointer',
  to,
  space,
});
export const tileType = (tile: Tile): IrType => ({ kind: 'pointer', to: tile.type, space: 'shared', tile });

/** The name of a value type, undefined for pointers and the like. */
export const valueName = (type: IrType): ValueName | undefined =>
  type.kind === 'value' ? type.name : undefined;

/** A type as messages and the IR printer show it. */
export function showType(type: IrType): string {
  switch (type.kind) {
    case 'value':
      return type.name;
    case 'pointer':
      if (type.tile !== undefined) return `tiles<${showTile(type.tile)}>`;
      return type.space === 'global' ? `pointer<${type.to}>` : `shared<${type.to}>`;
    case 'registers':
      return `${type.of}[${type.length}]`;
    case 'peers':
      return `peers<${type.layout.name}>`;
    case 'tensorMap':
      return `tensorMap<${showTile(type.tile)}, rank ${type.rank}>`;
    case 'void':
      return 'void';
  }
}

export function sameType(a: IrType, b: IrType): boolean {
  if (a.kind === 'peers' && b.kind === 'peers') return a.layout === b.layout;
  return a.kind === b.kind && showType(a) === showType(b);
}

export const constant = (type: ComputeName, value: arithmetic.Constant): Expr => ({
  kind: 'const',
  type: valueType(type),
  value,
});
export const boolean = (value: boolean): Expr => constant('bool', value);

export function zero(of: arithmetic.HeldName): Expr {
  if (of === 'v16') {
    return { kind: 'pack', type: v16, of: 'u32', lanes: Array.from({ length: 4 }, () => constant('u32', 0)) };
  }
  return constant(of, of === 'bool' ? false : of === 'u64' ? 0n : 0);
}

/** The type of a constant expression, where it is one. */
function computeName(of: Pick<Expr, 'type'>): ComputeName | undefined {
  const name = valueName(of.type);
  return name !== undefined && isComputeName(name) ? name : undefined;
}

const opposites: Readonly<Partial<Record<BinaryOp, BinaryOp>>> = {
  '==': '!=',
  '!=': '==',
  '<': '>=',
  '>=': '<',
  '>': '<=',
  '<=': '>',
};

/** `!test`, as a person writes it. (With NaN both of `<` and `>=` are false.) */
export function not(test: Expr): Expr {
  if (test.kind === 'unary' && test.op === '!') return test.arg;
  const opposite = test.kind === 'binary' ? opposites[test.op] : undefined;
  if (test.kind !== 'binary' || opposite === undefined || valueName(test.left.type) === 'f32') {
    return unary('!', test);
  }
  return { ...test, op: opposite };
}

export function unary(op: UnaryOp, arg: Expr): Expr {
  const name = computeName(arg);
  if (arg.kind === 'const' && name !== undefined) {
    return constant(name, arithmetic.unary(op, name, arg.value));
  }
  return { kind: 'unary', type: arg.type, op, arg };
}

/** Operands have one type already (a shift's right one is u32). */
export function binary(op: BinaryOp, left: Expr, right: Expr): Expr {
  const type = arithmetic.isComparison(op) ? bool : left.type;
  const name = computeName(left);
  const result = valueName(type);
  if (
    left.kind === 'const' &&
    right.kind === 'const' &&
    name !== undefined &&
    result !== undefined &&
    isComputeName(result)
  ) {
    return constant(result, arithmetic.binary(op, name, left.value, right.value));
  }
  const made: Expr = { kind: 'binary', type, op, left, right };
  const always = settled(made);
  if (always !== undefined) return boolean(always);
  return identity(op, left, right) ?? made;
}

/**
 * Integer operations that a specialisation made trivial: `token * 1`, `base + 0`. Expressions are pure, so an
 * operand that no longer matters may go. (Not for f32, where x + 0 is not always x.)
 */
function identity(op: BinaryOp, left: Expr, right: Expr): Expr | undefined {
  if (!arithmetic.isInteger(valueName(left.type) ?? '')) return undefined;
  const is = (side: Expr, value: number): boolean => side.kind === 'const' && Number(side.value) === value;
  switch (op) {
    case '+':
    case '|':
    case '^':
      return is(right, 0) ? left : is(left, 0) ? right : undefined;
    case '-':
    case '<<':
    case '>>':
      return is(right, 0) ? left : undefined;
    case '*':
      if (is(left, 0) || is(right, 1)) return left;
      return is(right, 0) || is(left, 1) ? right : undefined;
    case '/':
      return is(right, 1) ? left : undefined;
    case '%': {
      const name = valueName(left.type);
      return is(right, 1) && name !== undefined && isComputeName(name)
        ? convert(left.type, constant('u32', 0))
        : undefined;
    }
    case '&':
      return is(left, 0) ? left : is(right, 0) ? right : undefined;
    default:
      return undefined;
  }
}

/**
 * The outcome of a comparison that cannot have another: no unsigned value is less than 0. A limit that a specialisation makes 0
 * leaves none behind, and C++ compilers remark on them.
 */
export function settled(expr: Expr): boolean | undefined {
  const name = expr.kind === 'binary' ? valueName(expr.left.type) : undefined;
  if (expr.kind !== 'binary' || (name !== 'u32' && name !== 'u64')) return undefined;
  const { op, left, right } = expr;
  const zero = (side: Expr): boolean => side.kind === 'const' && Number(side.value) === 0;
  if ((op === '<' && zero(right)) || (op === '>' && zero(left))) return false;
  return (op === '>=' && zero(right)) || (op === '<=' && zero(left)) ? true : undefined;
}

export function select(test: Expr, then: Expr, otherwise: Expr): Expr {
  if (test.kind === 'const') return test.value === true ? then : otherwise;
  return { kind: 'select', type: then.type, test, then, else: otherwise };
}

export function convert(to: IrType, arg: Expr): Expr {
  if (sameType(to, arg.type)) return arg;
  const from = computeName(arg);
  const name = valueName(to);
  if (arg.kind === 'const' && from !== undefined && name !== undefined && isComputeName(name)) {
    return constant(name, arithmetic.convert(from, name, arg.value));
  }
  return { kind: 'convert', type: to, arg };
}

export function bits(to: 'i32' | 'u32' | 'f32', arg: Expr): Expr {
  const from = computeName(arg);
  if (from === to) return arg;
  // A NaN does not keep its payload in a JavaScript number: leave those bits to the machine.
  if (arg.kind === 'const' && from !== undefined) {
    const value = arithmetic.bits(from, to, arg.value);
    if (!Number.isNaN(value) && !Number.isNaN(arg.value)) return constant(to, value);
  }
  return { kind: 'bits', type: valueType(to), arg };
}

export function pure(name: PureFunction, type: IrType, args: readonly Expr[]): Expr {
  const of = computeName({ type });
  const constants = args.flatMap((arg) => (arg.kind === 'const' ? [arg.value] : []));
  if (of !== undefined && constants.length === args.length)
    return constant(of, computePure(name, of, constants));
  return { kind: 'pure', type, name, args };
}
