/**
 * Pure functions of values. All operands and the result have one type. A function has a form for each type that it takes: how
 * to compute it in JavaScript, by which the compiler folds constants and the simulator runs kernels, and the CUDA for it.
 */
import type { Constant } from '../arithmetic.js';
import type { f32, i32, u32, u64 } from '../language.js';
import type { ComputeName, ValueName } from '../types.js';
import { calls, type Signature } from './parts.js';

interface Form<Call = (...operands: never[]) => Constant> {
  /** Computes with values as the simulator's registers hold them: u32, like i32, as bitwise operators leave it. */
  readonly compute: Call;
  /** The JavaScript that stands in place of a call. */
  inline?(...operands: readonly string[]): string;
  /** A helper; or a name, of a function that CUDA brings. */
  readonly cuda: string;
}

interface PureOperation<Call = unknown> {
  readonly signature: Signature<Call>;
  readonly forms: { readonly [Type in ValueName]?: Form };
}

/** A pure function that takes operands of one type only. */
const of = <Call extends (...operands: never[]) => Constant>(
  type: ComputeName,
  form: Form<Call>,
): PureOperation<Call> => ({ signature: calls<Call>(), forms: { [type]: form } });

/** The smaller or the larger of two: of f32 as fminf and fmaxf, where a NaN loses against a number, and -0 is less than +0. */
function extreme(name: 'min' | 'max', u32: Compute<u32>, u64: Compute<u64>, f32: Compute<f32>) {
  const helper = `DEVICE f32 ${name}_f32(f32 a, f32 b) {
  f32 result;
  asm("${name}.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}`;
  return {
    signature: calls<<T extends i32 | u32 | u64 | f32>(a: T, b: T) => T>(),
    forms: {
      i32: { compute: Math[name], cuda: name },
      u32: { compute: u32, cuda: name },
      u64: { compute: u64, cuda: name },
      f32: { compute: f32, cuda: helper },
    },
  } satisfies PureOperation;
}
type Compute<T> = (a: T, b: T) => T;

/** An instruction that computes with the two bf16 of each word. Operands are the helper's own, or numbers. */
const pairs = (name: string, instruction: string, ...operands: readonly string[]): string => {
  const own = operands.filter((operand) => /^[abc]$/.test(operand)).map((operand) => `u32 ${operand}`);
  return `DEVICE u32 ${name}_pairs(${own.join(', ')}) {
  u32 result;
  asm("${instruction}.bf16x2 %0, ${operands.map((_, i) => `%${i + 1}`).join(', ')};" : "=r"(result) : ${operands.map((operand) => `"r"(${operand})`).join(', ')});
  return result;
}`;
};

export const pure = {
  min: extreme(
    'min',
    (a, b) => (a >>> 0 < b >>> 0 ? a : b),
    (a, b) => (a < b ? a : b),
    smaller,
  ),
  max: extreme(
    'max',
    (a, b) => (a >>> 0 > b >>> 0 ? a : b),
    (a, b) => (a > b ? a : b),
    larger,
  ),
  /** a · b + c with one rounding. */
  fma: of('f32', {
    compute: (a: f32, b: f32, c: f32): f32 => Math.fround(fused(a, b, c)),
    cuda: 'DEVICE f32 fma_f32(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }',
  }),
  /** 1 / a, correctly rounded. */
  rcp: of('f32', {
    compute: (a: f32): f32 => Math.fround(1 / a),
    inline: (a) => `fround(1 / ${a})`,
    cuda: 'DEVICE f32 rcp_f32(f32 a) { return __frcp_rn(a); }',
  }),
  /** The number of bits that are set. */
  popc: of('u32', {
    compute(a: u32): u32 {
      let v = a - ((a >>> 1) & 0x55555555);
      v = (v & 0x33333333) + ((v >>> 2) & 0x33333333);
      return Math.imul((v + (v >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
    },
    cuda: 'DEVICE u32 popc(u32 a) { return u32(__popc(a)); }',
  }),
  /** 1 + index of the lowest set bit; 0 if none. */
  ffs: of('u32', {
    compute: (a: u32): u32 => 32 - Math.clz32(a & -a),
    cuda: 'DEVICE u32 ffs(u32 a) { return u32(__ffs(i32(a))); }',
  }),
  /**
   * Four of the eight bytes of two words, the first word's before the other's: nibble i of the last operand says which is byte i, and 8 more says
   * that byte i is eight times that byte's highest bit.
   */
  permute: of('u32', {
    compute(a: u32, b: u32, selection: u32): u32 {
      let result = 0;
      for (let i = 0; i < 4; i++) {
        const nibble = (selection >>> (4 * i)) & 15;
        const byte = ((nibble & 4 ? b : a) >>> (8 * (nibble & 3))) & 255;
        result |= (nibble & 8 ? (byte & 128 ? 255 : 0) : byte) << (8 * i);
      }
      return result;
    },
    cuda: `DEVICE u32 permute(u32 a, u32 b, u32 selection) {
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selection));
  return result;
}`,
  }),
  /** Multiplies the two bf16 of one word by those of another; each product is rounded to the nearest bf16, or else the even one. */
  multiplyPairs: of('u32', {
    compute: (a: u32, b: u32): u32 => fusedPairs(a, b, 0x80008000),
    // Adding -0 keeps the sign of zeros. GPUs before Hopper have no product of pairs without a sum, and no sum.
    cuda: pairs('multiply', 'fma.rn', 'a', 'b', '0x80008000u'),
  }),
  /** Adds the bf16 of two words, likewise. */
  addPairs: of('u32', {
    compute: (a: u32, b: u32): u32 => fusedPairs(a, 0x3f803f80, b),
    cuda: pairs('add', 'fma.rn', 'a', '0x3f803f80u', 'b'),
  }),
  /** a · b + c of the bf16 of three words, each with one rounding. */
  fmaPairs: of('u32', {
    compute: (a: u32, b: u32, c: u32): u32 => fusedPairs(a, b, c),
    cuda: pairs('fma', 'fma.rn', 'a', 'b', 'c'),
  }),
  /** The smaller or the larger of the bf16 of two words, as `min` and `max` find them. */
  minPairs: of('u32', {
    compute: (a: u32, b: u32): u32 => smallerPairs(a, b, 0),
    cuda: pairs('min', 'min', 'a', 'b'),
  }),
  maxPairs: of('u32', {
    compute: (a: u32, b: u32): u32 => largerPairs(a, b, 0),
    cuda: pairs('max', 'max', 'a', 'b'),
  }),
};

const long = new BigInt64Array(1);
const double = new Float64Array(long.buffer);
const word = new Int32Array(1);
const float = new Float32Array(word.buffer);

/** The exact a · b + c, rounded to odd in f64: whoever rounds that to less rounds once. */
function fused(a: number, b: number, c: number): number {
  const product = a * b;
  const sum = product + c;
  if (!Number.isFinite(sum)) return sum;
  const back = sum - product;
  const error = product - (sum - back) + (c - back);
  if (error === 0) return sum;
  double[0] = sum;
  // The double just above or below, away from or towards zero.
  if ((long[0]! & 1n) === 0n) long[0]! += error > 0 === sum > 0 ? 1n : -1n;
  return double[0];
}

function smaller(a: f32, b: f32): f32 {
  return Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.min(a, b);
}
function larger(a: f32, b: f32): f32 {
  return Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.max(a, b);
}

/** Computes with the two bf16 of each word. */
const ofPairs =
  (compute: (a: number, b: number, c: number) => number) =>
  (a: u32, b: u32, c: u32): u32 =>
    toBf16(compute(fromBf16(a << 16), fromBf16(b << 16), fromBf16(c << 16))) |
    (toBf16(compute(fromBf16(a), fromBf16(b), fromBf16(c))) << 16);
const fusedPairs = ofPairs(fused);
const smallerPairs = ofPairs(smaller);
const largerPairs = ofPairs(larger);

/** The bf16 in the upper half of a word. */
function fromBf16(upper: u32): number {
  word[0] = upper & 0xffff0000;
  return float[0]!;
}

/** Rounds once, by way of an f32 that is rounded to odd. Every NaN is 0x7fff. */
function toBf16(value: number): u32 {
  if (Number.isNaN(value)) return 0x7fff;
  float[0] = value;
  if (float[0] !== value && (word[0]! & 1) === 0) word[0]! += Math.abs(float[0]!) < Math.abs(value) ? 1 : -1;
  return (word[0]! + 0x7fff + ((word[0]! >>> 16) & 1)) >>> 16;
}

export type PureFunction = keyof typeof pure;
export const pureFunctions: Readonly<Record<PureFunction, PureOperation>> = pure;
export const pureNames = Object.keys(pure) as readonly PureFunction[];

/** The result of a function for constants, of which a u32 is never negative. */
export function computePure(name: PureFunction, type: ComputeName, of: readonly Constant[]): Constant {
  const compute = pureFunctions[name].forms[type]!.compute as (...operands: Constant[]) => Constant;
  if (type !== 'u32') return compute(...of);
  return Number(compute(...of.map((operand) => Number(operand) | 0))) >>> 0;
}
