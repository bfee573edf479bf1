/**
 * The exact results of the language's operations: the constant folder uses it, and the back ends are tested
 * against it. Integers wrap; shift counts are taken modulo the width; x / 0 has all bits set (0xffffffff, -1)
 * and x % 0 is x; f32 rounds to nearest even at every step.
 */
import type { RegisterName } from './language.js';
import type { ComputeName, IrType, ValueName } from './types.js';

export type UnaryOp = '-' | '~' | '!';
export type IntegerOp = '+' | '-' | '*' | '/' | '%' | '&' | '|' | '^' | '<<' | '>>';
export type FloatOp = '+' | '-' | '*' | '/';
type Comparison = '==' | '!=' | '<' | '<=' | '>' | '>=';
export type BinaryOp = IntegerOp | Comparison | '&&' | '||';

export type Constant = number | bigint | boolean;
type IntegerName = 'i32' | 'u32' | 'u64';

export const isInteger = (name: string): name is IntegerName =>
  name === 'i32' || name === 'u32' || name === 'u64';

export type HeldName = Extract<IrType, { readonly kind: 'registers' }>['of'];
/** The type as which registers hold a value: u8 and u16 widen to u32. */
export function heldName(name: RegisterName): HeldName;
export function heldName(name: ValueName): ValueName;
export function heldName(name: ValueName): ValueName {
  return name === 'u8' || name === 'u16' ? 'u32' : name;
}

/** The type of a value; of what it points to, as registers hold it, if it is a pointer. */
export const heldType = (type: IrType): IrType =>
  type.kind === 'pointer' ? { kind: 'value', name: heldName(type.to) } : type;

/** The low bits of `value`, as an integer of that type. */
export function wrap(type: IntegerName, value: bigint): number | bigint {
  if (type === 'u64') return BigInt.asUintN(64, value);
  return Number(type === 'u32' ? BigInt.asUintN(32, value) : BigInt.asIntN(32, value));
}

export function unary(op: UnaryOp, type: ComputeName, a: Constant): Constant {
  if (op === '!') return !a;
  if (isInteger(type)) return wrap(type, op === '-' ? -BigInt(a) : ~BigInt(a));
  return -Number(a);
}

export const comparisons: Readonly<Record<Comparison, (a: Constant, b: Constant) => boolean>> = {
  '==': (a, b) => a === b,
  '!=': (a, b) => a !== b,
  '<': (a, b) => a < b,
  '<=': (a, b) => a <= b,
  '>': (a, b) => a > b,
  '>=': (a, b) => a >= b,
};
export const isComparison = (op: string): op is Comparison => Object.hasOwn(comparisons, op);

/** Results before they wrap to the type's width. The second operand of a shift is less than that width. */
export const integers: Readonly<Record<IntegerOp, (a: bigint, b: bigint) => bigint>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => (b === 0n ? -1n : a / b),
  '%': (a, b) => (b === 0n ? a : a % b),
  '&': (a, b) => a & b,
  '|': (a, b) => a | b,
  '^': (a, b) => a ^ b,
  '<<': (a, b) => a << b,
  '>>': (a, b) => a >> b,
};

/** A double holds the exact product or sum of two f32 well enough that rounding it to f32 rounds only once. */
export const floats: Readonly<Record<FloatOp, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
};

/** `type` is that of the operands; the right operand of a shift is a u32. */
export function binary(op: BinaryOp, type: ComputeName, a: Constant, b: Constant): Constant {
  if (isComparison(op)) return comparisons[op](a, b);
  if (op === '&&') return Boolean(a) && Boolean(b);
  if (op === '||') return Boolean(a) || Boolean(b);
  if (!isInteger(type)) return Math.fround(floats[op as FloatOp](Number(a), Number(b)));
  const width = type === 'u64' ? 63n : 31n;
  const right = op === '<<' || op === '>>' ? BigInt(b) & width : BigInt(b);
  return wrap(type, integers[op](BigInt(a), right));
}

/** Between the types that can be computed with. f32 → integer truncates and saturates; NaN is 0. */
export function convert(from: ComputeName, to: ComputeName, a: Constant): Constant {
  if (from === to) return a;
  if (to === 'bool') return from === 'f32' ? a !== 0 : BigInt(a) !== 0n;
  if (to === 'f32') return from === 'u64' ? roundToF32(BigInt(a)) : Math.fround(Number(a));
  if (from !== 'f32') return wrap(to, BigInt(a));
  return saturate(to, Number(a));
}

const limits = {
  i32: [-(2n ** 31n), 2n ** 31n - 1n],
  u32: [0n, 2n ** 32n - 1n],
  u64: [0n, 2n ** 64n - 1n],
} as const;

export const inRange = (type: IntegerName, value: bigint): boolean =>
  value >= limits[type][0] && value <= limits[type][1];

function saturate(to: IntegerName, a: number): number | bigint {
  if (Number.isNaN(a)) return wrap(to, 0n);
  const [low, high] = limits[to];
  if (a <= Number(low)) return wrap(to, low);
  if (a >= Number(high)) return wrap(to, high);
  return wrap(to, BigInt(Math.trunc(a)));
}

/** Through a double, but with the bits that do not fit one kept as a sticky bit: one rounding, not two. */
function roundToF32(a: bigint): number {
  if (a < 2n ** 53n) return Math.fround(Number(a));
  const sticky = a & 0x7ffn ? 1n : 0n;
  return Math.fround(Number((a >> 11n) | sticky) * 2048);
}

const bitBuffer = new DataView(new ArrayBuffer(4));

export function bits(from: ComputeName, to: ComputeName, a: Constant): Constant {
  if (from === 'f32') bitBuffer.setFloat32(0, Number(a));
  else bitBuffer.setUint32(0, Number(a) >>> 0);
  if (to === 'f32') return bitBuffer.getFloat32(0);
  return to === 'u32' ? bitBuffer.getUint32(0) : bitBuffer.getInt32(0);
}
