/**
 * Arithmetic of PTX that JavaScript lacks, as generated code calls it. Words are signed 32-bit integers; 64 bits are two words.
 * An operation that gives 64 bits returns the lower word and leaves the upper one in `up[0]`. f32 are doubles that hold an f32.
 */
import { pureFunctions } from '../../../lang/index.js';
import { bf16ToF32, e4m3ToF32, f16ToF32, f32ToBf16, f32ToF16 } from '../../index.js';
import { arithmetic } from '../arithmetic.js';
import { type Direction, type Format, operate, rounded, roundedInteger } from './rounding.js';

const up = new Int32Array(1);
const carry = new Int32Array(1);
const long = new BigUint64Array(1);
const words = new Int32Array(long.buffer);
const double = new Float64Array(long.buffer);
const float = new Float32Array(long.buffer);

const fma = pureFunctions.fma.forms.f32!.compute as (a: number, b: number, c: number) => number;

function give(value: bigint): number {
  long[0] = BigInt.asUintN(64, value);
  up[0] = words[1]!;
  return words[0]!;
}

const unsigned = (low: number, high: number): bigint => (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
const signed = (low: number, high: number): bigint => (BigInt(high) << 32n) | BigInt(low >>> 0);
const ofBig = (isSigned: boolean) => (isSigned ? signed : unsigned);

function umulh(a: number, b: number): number {
  const [al, ah, bl, bh] = [a & 0xffff, a >>> 16, b & 0xffff, b >>> 16];
  const low = al * bl;
  const middle = ah * bl + (low >>> 16);
  const cross = al * bh + (middle & 0xffff);
  // Each term is below 2^32, and so is the sum.
  return (ah * bh + Math.floor(middle / 0x10000) + Math.floor(cross / 0x10000)) | 0;
}

function roundEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  if (rest < 0.5) return floor === 0 && x < 0 ? -0 : floor;
  if (rest > 0.5) return floor + 1 === 0 ? -0 : floor + 1;
  const even = floor % 2 === 0 ? floor : floor + 1;
  return even === 0 && x < 0 ? -0 : even;
}

const wholes: Readonly<Record<string, (x: number) => number>> = {
  rni: roundEven,
  rzi: Math.trunc,
  rmi: Math.floor,
  rpi: Math.ceil,
};

const half = {
  f16: { read: f16ToF32, write: f32ToF16, exponent: 0x7c00 },
  bf16: { read: bf16ToF32, write: f32ToBf16, exponent: 0x7f80 },
} as const;

export type HalfType = keyof typeof half;
export type HalfOperation = 'add' | 'sub' | 'mul' | 'fma' | 'min' | 'max' | 'neg' | 'abs' | 'ex2' | 'tanh';

/** Qualifiers of an instruction: subnormals become 0 (`ftz`), the result is clamped to 0 … 1 (`sat`) or to at least 0 (`relu`), NaN operands win (`NaN`). */
export type HalfHow = 'ftz' | 'sat' | 'relu' | 'NaN';

/** One operation on 16-bit floats, which rounds once. */
function halfOne(
  type: HalfType,
  op: HalfOperation,
  a: number,
  b: number,
  c: number,
  how: readonly HalfHow[] = [],
): number {
  const { read, write, exponent } = half[type];
  const flush = (bits: number): number =>
    how.includes('ftz') && (bits & exponent) === 0 ? bits & 0x8000 : bits & 0xffff;
  // Signs change on what is no number, too.
  if (op === 'neg') return flush(a) ^ 0x8000;
  if (op === 'abs') return flush(a) & 0x7fff;
  const [x, y, z] = [read(flush(a)), read(flush(b)), read(flush(c))];
  let result: number;
  if (op === 'min' || op === 'max')
    result = (how.includes('NaN') ? Math[op] : op === 'min' ? fmin : fmax)(x, y);
  else if (op === 'ex2') result = 2 ** x;
  else if (op === 'tanh') result = Math.tanh(x);
  else result = operate(op, type, 'rn', x, y, z);
  if (how.includes('sat')) result = sat(result);
  if (how.includes('relu')) result = relu(result);
  return flush(write(result));
}

const isNegative = (x: number): boolean => x < 0 || Object.is(x, -0);
const sat = (x: number): number => (x > 0 ? (x < 1 ? x : 1) : 0);
/** No number stays none. */
const relu = (x: number): number => Math.max(x, 0);

const fmin = (a: number, b: number): number => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.min(a, b));
const fmax = (a: number, b: number): number => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.max(a, b));

const clampInteger = (x: number, low: number, high: number): number =>
  Number.isNaN(x) ? 0 : x < low ? low : x > high ? high : x;

interface Integers {
  readonly a: bigint;
  readonly b: bigint;
  readonly c: bigint;
  readonly d: bigint;
  readonly bits: number;
  readonly cut: (bits: number, value: bigint) => bigint;
  /** The carry of the one before. */
  readonly by: bigint;
}

/** A sum that leaves its carry, of integers without a sign. */
function carrying(bits: number, sum: bigint): bigint {
  carry[0] = BigInt.asUintN(bits, sum) === sum ? 0 : 1;
  return sum;
}
const size = (x: bigint): bigint => (x < 0n ? -x : x);
const within = (low: bigint, high: bigint, x: bigint): bigint => (x < low ? low : x > high ? high : x);
const [least, most] = [-(2n ** 31n), 2n ** 31n - 1n];
const product24 = ({ a, b, cut }: Integers): bigint => cut(24, a) * cut(24, b);

const exact: Readonly<Record<string, (of: Integers) => bigint>> = {
  div: ({ a, b }) => (b === 0n ? -1n : a / b),
  rem: ({ a, b }) => (b === 0n ? a : a % b),
  mulhi: ({ a, b, bits }) => (a * b) >> BigInt(bits),
  mul24: product24,
  mad24: (of) => product24(of) + of.c,
  sad: ({ a, b, c }) => size(a - b) + c,
  addsat: ({ a, b }) => within(least, most, a + b),
  subsat: ({ a, b }) => within(least, most, a - b),
  add: ({ a, b, by, bits }) => carrying(bits, BigInt.asUintN(bits, a) + BigInt.asUintN(bits, b) + by),
  sub: ({ a, b, by, bits }) => carrying(bits, BigInt.asUintN(bits, a) - BigInt.asUintN(bits, b) - by),
  madlo: ({ a, b, c, by, bits }) =>
    carrying(bits, BigInt.asUintN(bits, a * b) + BigInt.asUintN(bits, c) + by),
  madhi: ({ a, b, c, by, bits }) =>
    carrying(bits, BigInt.asUintN(bits, (a * b) >> BigInt(bits)) + BigInt.asUintN(bits, c) + by),
  bfe: ({ a, b, c, cut }) => {
    const length = Number(BigInt.asUintN(8, c));
    return length === 0 ? 0n : cut(length, a >> BigInt.asUintN(8, b));
  },
  bfi: ({ a, b, c, d, bits }) => {
    const at = BigInt.asUintN(8, c);
    const mask = BigInt.asUintN(bits, BigInt.asUintN(Number(BigInt.asUintN(8, d)), -1n) << at);
    return (b & ~mask) | ((a << at) & mask);
  },
};

export const ptxArithmetic = {
  ...arithmetic,
  up,
  carry,
  fma,
  fmin,
  fmax,
  umulh,
  smulh: (a: number, b: number): number => (umulh(a, b) - (a < 0 ? b : 0) - (b < 0 ? a : 0)) | 0,

  // Bits.
  bitsOf(value: number): number {
    // The GPU's own arithmetic gives this for no number.
    if (Number.isNaN(value)) return 0x7fffffff;
    float[0] = value;
    return words[0]!;
  },
  floatOf(bits: number): number {
    words[0] = bits;
    return float[0]!;
  },
  doubleOf(low: number, high: number): number {
    words[0] = low;
    words[1] = high;
    return double[0]!;
  },
  /** The lower word; the upper one is in `up`. */
  bitsOfDouble(value: number): number {
    if (Number.isNaN(value)) {
      up[0] = 0x7ff80000;
      return 0;
    }
    double[0] = value;
    up[0] = words[1]!;
    return words[0]!;
  },

  // Words.
  popc: pureFunctions.popc.forms.u32!.compute as (a: number) => number,
  brev(a: number): number {
    let x = ((a >>> 1) & 0x55555555) | ((a & 0x55555555) << 1);
    x = ((x >>> 2) & 0x33333333) | ((x & 0x33333333) << 2);
    x = ((x >>> 4) & 0x0f0f0f0f) | ((x & 0x0f0f0f0f) << 4);
    x = ((x >>> 8) & 0x00ff00ff) | ((x & 0x00ff00ff) << 8);
    return (x >>> 16) | (x << 16);
  },
  prmt: pureFunctions.permute.forms.u32!.compute as (a: number, b: number, selection: number) => number,
  lop3(a: number, b: number, c: number, table: number): number {
    let result = 0;
    for (let i = 0; i < 8; i++)
      if ((table >>> i) & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
  },
  /** The bits of b:a from `by` on. */
  funnel: (low: number, high: number, by: number): number =>
    by === 0 ? low : by >= 32 ? high : (low >>> by) | (high << (32 - by)),
  bfi(a: number, into: number, at: number, length: number): number {
    const [from, count] = [at & 255, length & 255];
    if (from > 31 || count === 0) return into;
    const mask = count >= 32 ? -1 << from : ((1 << count) - 1) << from;
    return (into & ~mask) | ((a << from) & mask);
  },

  // Pairs.
  mul64(al: number, ah: number, bl: number, bh: number): number {
    up[0] = umulh(al, bl) + Math.imul(al, bh) + Math.imul(ah, bl);
    return Math.imul(al, bl);
  },
  shl64(low: number, high: number, by: number): number {
    const n = by >>> 0;
    if (n === 0) up[0] = high;
    else if (n < 32) up[0] = (high << n) | (low >>> (32 - n));
    else up[0] = n > 63 ? 0 : low << (n - 32);
    return n > 31 ? 0 : low << n;
  },
  shr64(low: number, high: number, by: number, isSigned: boolean): number {
    const n = by >>> 0;
    const fill = isSigned ? high >> 31 : 0;
    if (n === 0) {
      up[0] = high;
      return low;
    }
    if (n < 32) {
      up[0] = isSigned ? high >> n : high >>> n;
      return (low >>> n) | (high << (32 - n));
    }
    up[0] = fill;
    if (n > 63) return fill;
    return isSigned ? high >> (n - 32) : high >>> (n - 32);
  },

  // f32 and f64.
  operate,
  rounded,
  ftz: (x: number): number => (Math.abs(x) < 2 ** -126 ? (isNegative(x) ? -0 : 0) : x),
  ftzDouble: (x: number): number => (Math.abs(x) < 2 ** -1022 ? (isNegative(x) ? -0 : 0) : x),
  sat,
  copysign: (sign: number, x: number): number => (isNegative(sign) ? -Math.abs(x) : Math.abs(x)),
  whole: (x: number, mode: string): number => wholes[mode]!(x),
  toInt: (x: number, mode: string, low: number, high: number): number =>
    clampInteger(wholes[mode]!(x), low, high) | 0,
  toLong(x: number, mode: string, isSigned: boolean): number {
    if (Number.isNaN(x)) return give(1n << 63n);
    const [low, high] = isSigned ? [-(2 ** 63), 2 ** 63] : [0, 2 ** 64];
    const whole = wholes[mode]!(x);
    if (whole <= low) return give(BigInt(low));
    return give(whole >= high ? BigInt(high) - 1n : BigInt(whole));
  },
  /** To a float, rounded once. */
  fromLong: (low: number, high: number, isSigned: boolean, to: Format, mode: Direction): number =>
    roundedInteger(ofBig(isSigned)(low, high), to, mode),
  saturated(low: number, high: number, isSigned: boolean, least: bigint, most: bigint): number {
    const value = ofBig(isSigned)(low, high);
    return give(within(least, most, value));
  },
  /** The lower word of what `name` gives of integers of so many bits; the carry that it leaves is in `carry`. */
  exactly(name: string, bits: number, isSigned: boolean, by: number, ...words: readonly number[]): number {
    const cut = isSigned ? BigInt.asIntN : BigInt.asUintN;
    const [a = 0n, b = 0n, c = 0n, d = 0n] = [0, 2, 4, 6].map((i) =>
      i < words.length ? cut(bits, unsigned(words[i]!, words[i + 1]!)) : 0n,
    );
    return give(exact[name]!({ a, b, c, d, bits, cut, by: BigInt(by) }));
  },

  // Small floats.
  halfOne,
  halfTwo: (...[type, op, a, b, c, how]: Parameters<typeof halfOne>): number =>
    halfOne(type, op, a, b, c, how) | (halfOne(type, op, a >>> 16, b >>> 16, c >>> 16, how) << 16),
  doubleToF16: (x: number): number => f32ToF16(rounded(x, 'f16', 'rn')),
  doubleToBf16: (x: number): number => f32ToBf16(rounded(x, 'bf16', 'rn')),
  e4m3ToF16: (bits: number): number => f32ToF16(e4m3ToF32(bits)),
  f32ToE5m2: (x: number): number => f32ToF16(rounded(x, 'e5m2', 'rn', true)) >>> 8,
  relu,
};
