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

export const pure = {
  min: extreme(
    'min',
    (a, b) => (a >>> 0 < b >>> 0 ? a : b),
    (a, b) => (a < b ? a : b),
    (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.min(a, b)),
  ),
  max: extreme(
    'max',
    (a, b) => (a >>> 0 > b >>> 0 ? a : b),
    (a, b) => (a > b ? a : b),
    (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.max(a, b)),
  ),
  /** a · b + c with one rounding. */
  fma: of('f32', {
    // The sum of the exact product, rounded to odd in f64, then to f32.
    compute(a: f32, b: f32, c: f32): f32 {
      const product = a * b;
      const sum = product + c;
      if (!Number.isFinite(sum)) return Math.fround(sum);
      const back = sum - product;
      const error = product - (sum - back) + (c - back);
      if (error === 0) return Math.fround(sum);
      double[0] = sum;
      if ((long[0]! & 1n) === 1n) return Math.fround(sum);
      // The double just above or below, away from or towards zero.
      long[0]! += error > 0 === sum > 0 ? 1n : -1n;
      return Math.fround(double[0]);
    },
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
  /** Multiplies the two bf16 of one word by those of another; each product is rounded to the nearest bf16, or else the even one. */
  multiplyPairs: of('u32', {
    compute: (a: u32, b: u32): u32 => bf16Product(a << 16, b << 16) | (bf16Product(a, b) << 16),
    // Adding -0 keeps the sign of zeros. GPUs before Hopper have no product of pairs without a sum.
    cuda: `DEVICE u32 multiply_pairs(u32 a, u32 b) {
  u32 result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(0x80008000u));
  return result;
}`,
  }),
};

const long = new BigInt64Array(1);
const double = new Float64Array(long.buffer);
const word = new Int32Array(1);
const float = new Float32Array(word.buffer);

/** The product of the bf16 in the upper halves of two words. Every NaN is 0x7fff. */
function bf16Product(a: u32, b: u32): u32 {
  const sign = ((a ^ b) >>> 16) & 0x8000;
  word[0] = a & 0x7fff0000;
  const left = float[0]!;
  word[0] = b & 0x7fff0000;
  // Exact in f64; and in f32, where it is a normal number. The others are rounded to a multiple of their one step.
  const product = left * float[0]!;
  if (Number.isNaN(product)) return 0x7fff;
  if (product < 2 ** -126) {
    const steps = product * 2 ** 133;
    const whole = Math.floor(steps);
    const rest = steps - whole;
    return sign | (whole + Number(rest > 0.5 || (rest === 0.5 && whole % 2 === 1)));
  }
  float[0] = product;
  return sign | ((word[0]! + 0x7fff + ((word[0]! >>> 16) & 1)) >>> 16);
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
