/** Rounding to any format of floats, in any direction: exact, for what JavaScript does not round by itself. */

/** The bits of a significand, the power of two of the smallest number, and the largest number. */
const formats = {
  f64: { bits: 53, least: -1074, most: Number.MAX_VALUE },
  f32: { bits: 24, least: -149, most: (2 - 2 ** -23) * 2 ** 127 },
  bf16: { bits: 8, least: -133, most: (2 - 2 ** -7) * 2 ** 127 },
  f16: { bits: 11, least: -24, most: 65504 },
  e5m2: { bits: 3, least: -16, most: 57344 },
  e4m3: { bits: 4, least: -9, most: 448 },
} as const;

export type Format = keyof typeof formats;
/** To nearest, ties to even; towards zero; down; up; to nearest, ties away from zero. */
export type Direction = 'rn' | 'rz' | 'rm' | 'rp' | 'rna';

/** mantissa · 2^exponent. */
interface Exact {
  readonly mantissa: bigint;
  readonly exponent: number;
}

function round({ mantissa, exponent }: Exact, to: Format, mode: Direction): number {
  const { bits, least, most } = formats[to];
  const negative = mantissa < 0n;
  const size = negative ? -mantissa : mantissa;
  const dropped = Math.max(0, size.toString(2).length - bits, least - exponent);
  const kept = size >> BigInt(dropped);
  // Twice what is dropped, beside the unit of what is kept.
  const twice = (size - (kept << BigInt(dropped))) << 1n;
  const unit = 1n << BigInt(dropped);
  const away = {
    rn: twice > unit || (twice === unit && (kept & 1n) === 1n),
    rna: twice >= unit,
    rz: false,
    rm: negative && twice > 0n,
    rp: !negative && twice > 0n,
  }[mode];
  const value = Number(away ? kept + 1n : kept) * 2 ** (exponent + dropped);
  const stays = mode === 'rz' || mode === (negative ? 'rp' : 'rm');
  const inRange = value <= most ? value : stays ? most : Number.POSITIVE_INFINITY;
  return negative ? -inRange : inRange;
}

const double = new Float64Array(1);
const bits = new BigUint64Array(double.buffer);
const words = new Uint32Array(double.buffer);

function exact(value: number): Exact {
  double[0] = value;
  const biased = Number((bits[0]! >> 52n) & 0x7ffn);
  const fraction = bits[0]! & 0xfffffffffffffn;
  const mantissa = biased === 0 ? fraction : fraction | 0x10000000000000n;
  return { mantissa: value < 0 ? -mantissa : mantissa, exponent: Math.max(biased, 1) - 1075 };
}

/** Results of f64 are far from where they overflow, or lose bits because they are small. */
const isModerate = (value: number): boolean => {
  const size = Math.abs(value);
  return size > 2 ** -400 && size < 2 ** 400;
};

/** The rounding of a sum has lost that. */
function lostBySum(a: number, b: number, sum: number): number {
  const ofB = sum - a;
  return a - (sum - ofB) + (b - ofB);
}

/** The halves have 26 bits, so that their products are exact. */
function halves(value: number): readonly [high: number, low: number] {
  const shifted = value * (2 ** 27 + 1);
  const high = shifted - (shifted - value);
  return [high, value - high];
}

/** Sums that lose nothing make fma of f64 for moderate numbers; the last bit of one stands for all below it. */
function fmaOfModerate(a: number, b: number, c: number): number {
  const above = a * b;
  const [aHigh, aLow] = halves(a);
  const [bHigh, bLow] = halves(b);
  const below = aLow * bLow - (above - aHigh * bHigh - aLow * bHigh - aHigh * bLow);
  const small = c + below;
  const high = above + small;
  const [smallLost, highLost] = [lostBySum(c, below, small), lostBySum(above, small, high)];
  const rest = smallLost + highLost;
  const lost = lostBySum(smallLost, highLost, rest);
  double[0] = rest;
  if (lost !== 0 && (words[0]! & 1) === 0)
    if (rest < 0 === lost < 0) words[0]!++;
    else if (words[0]!-- === 0) words[1]!--;
  return high + double[0];
}

const product = (a: Exact, b: Exact): Exact => ({
  mantissa: a.mantissa * b.mantissa,
  exponent: a.exponent + b.exponent,
});

function sum(a: Exact, b: Exact): Exact {
  const exponent = Math.min(a.exponent, b.exponent);
  const scaled = (one: Exact): bigint => one.mantissa << BigInt(one.exponent - exponent);
  return { mantissa: scaled(a) + scaled(b), exponent };
}

const minus = ({ mantissa, exponent }: Exact): Exact => ({ mantissa: -mantissa, exponent });

/** More bits than any format has; the lowest stands for all that are lost. */
const many = 130;

function quotient(a: Exact, b: Exact): Exact {
  const [over, under] = [a.mantissa << BigInt(many), b.mantissa];
  const whole = over / under;
  const sign = a.mantissa < 0n !== b.mantissa < 0n ? -1n : 1n;
  const lost = whole * under === over ? 0n : sign;
  return { mantissa: 2n * whole + lost, exponent: a.exponent - b.exponent - many - 1 };
}

function root({ mantissa, exponent }: Exact): Exact {
  const shift = many + (exponent & 1);
  const of = mantissa << BigInt(shift);
  let found = 1n << BigInt((of.toString(2).length + 1) >> 1);
  for (;;) {
    const next = (found + of / found) >> 1n;
    if (next >= found) break;
    found = next;
  }
  const lost = found * found === of ? 0n : 1n;
  return { mantissa: 2n * found + lost, exponent: (exponent - shift) / 2 - 1 };
}

interface Operation {
  /** As doubles have it, which is right for what is not finite. */
  plain(a: number, b: number, c: number): number;
  exact(a: Exact, b: Exact, c: Exact): Exact;
  /** The two numbers that the operation adds, where it is a sum. */
  terms?(a: number, b: number, c: number): readonly number[];
}

const operations = {
  add: { plain: (a, b) => a + b, exact: sum, terms: (a, b) => [a, b] },
  sub: { plain: (a, b) => a - b, exact: (a, b) => sum(a, minus(b)), terms: (a, b) => [a, -b] },
  mul: { plain: (a, b) => a * b, exact: product },
  div: { plain: (a, b) => a / b, exact: quotient },
  sqrt: { plain: (a) => Math.sqrt(a), exact: root },
  fma: {
    plain: (a, b, c) => a * b + c,
    exact: (a, b, c) => sum(product(a, b), c),
    terms: (a, b, c) => [a * b, c],
  },
} satisfies Readonly<Record<string, Operation>>;

export type Rounding = keyof typeof operations;

export function operate(op: Rounding, to: Format, mode: Direction, a: number, b = 0, c = 0): number {
  if (op === 'fma' && to === 'f64' && mode === 'rn' && isModerate(a) && isModerate(b))
    if (isModerate(c)) return fmaOfModerate(a, b, c);
    else if (c === 0) return a * b;
  const { plain, exact: of, terms }: Operation = operations[op];
  const nearest = plain(a, b, c);
  const finite = Number.isFinite(a) && Number.isFinite(b) && Number.isFinite(c);
  if (!finite || Number.isNaN(nearest) || (op === 'div' && b === 0) || (op === 'sqrt' && a === 0))
    return nearest;
  const result = of(exact(a), exact(b), exact(c));
  if (result.mantissa !== 0n) return round(result, to, mode);
  // Terms that cancel each other are -0 where all is rounded down.
  if (terms === undefined) return nearest;
  if (mode === 'rm' && !terms(a, b, c).every((term) => Object.is(term, 0))) return -0;
  return nearest === 0 ? nearest : 0;
}

/** A number in another format; `saturates`: the largest there is stands for all that are larger. */
export function rounded(value: number, to: Format, mode: Direction, saturates = false): number {
  const { most } = formats[to];
  const inTo = Number.isFinite(value) && value !== 0 ? round(exact(value), to, mode) : value;
  return saturates ? Math.max(-most, Math.min(most, inTo)) : inTo;
}

export const roundedInteger = (value: bigint, to: Format, mode: Direction): number =>
  value === 0n ? 0 : round({ mantissa: value, exponent: 0 }, to, mode);
