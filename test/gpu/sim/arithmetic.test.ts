import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { arithmetic } from '../../../src/gpu/sim/arithmetic.js';
import { computePure, type PureFunction } from '../../../src/lang/operations/pure.js';

const { u64ToF32, f32ToI32, f32ToU32, f32ToU64, idiv, irem, udiv, urem } = arithmetic;
const ofF32 =
  (name: PureFunction) =>
  (...of: number[]) =>
    computePure(name, 'f32', of) as number;
const [fma, fmin, fmax] = [ofF32('fma'), ofF32('min'), ofF32('max')];
const f32 = fc
  .integer({ min: 0, max: 2 ** 32 - 1 })
  .map((bits) => new Float32Array(Uint32Array.of(bits).buffer)[0]!);

/** A finite f32 as an integer times 2^-149. */
const scaled = (x: number): bigint => BigInt(x * 2 ** 149);

/** n · 2^-scale rounded once to f32, ties to even, worked out in integers. */
function roundToF32(n: bigint, scale: number): number {
  if (n === 0n) return 0;
  const sign = n < 0n ? -1 : 1;
  const magnitude = n < 0n ? -n : n;
  const exponent = magnitude.toString(2).length - 1 - scale;
  const step = Math.max(exponent - 23, -149);
  const shift = BigInt(step + scale);
  const kept = shift > 0n ? magnitude >> shift : magnitude << -shift;
  const rest = shift > 0n ? magnitude - (kept << shift) : 0n;
  const half = shift > 0n ? 1n << (shift - 1n) : 0n;
  const up = rest > half || (rest === half && rest > 0n && kept % 2n === 1n);
  const value = Number(up ? kept + 1n : kept) * 2 ** step;
  return sign * (value > 3.4028234663852886e38 ? Infinity : value);
}

describe('fma', () => {
  it('rounds once', () => {
    fc.assert(
      fc.property(f32, f32, f32, (a, b, c) => {
        if (![a, b, c].every(Number.isFinite)) return;
        const exact = scaled(a) * scaled(b) + (scaled(c) << 149n);
        const want = roundToF32(exact, 298);
        if (want !== 0) expect(fma(a, b, c)).toBe(want);
      }),
      { seed: 1, numRuns: 5000 },
    );
  });

  it('rounds once where two roundings would differ', () => {
    // The product is just above a tie that f64 cannot tell from the tie itself.
    const a = 1 + 2 ** -12;
    const tie = fma(a, a, 2 ** 24);
    expect(tie).toBe(2 ** 24 + 2);
    expect(fma(2 ** -30, 2 ** -30, 1 + 2 ** -23)).toBe(1 + 2 ** -23);
    expect(fma(1 + 2 ** -23, 1 + 2 ** -23, -(1 + 2 ** -22))).toBe(2 ** -46);
  });

  it('passes NaN and infinity on', () => {
    expect(fma(Infinity, 0, 1)).toBeNaN();
    expect(fma(Infinity, 2, 1)).toBe(Infinity);
    expect(fma(3e38, 3e38, -Infinity)).toBe(-Infinity);
  });
});

describe('conversions', () => {
  it('u64 to f32 rounds once', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (x) => {
        expect(u64ToF32(x)).toBe(roundToF32(x, 0));
      }),
      { seed: 1, numRuns: 2000 },
    );
    expect(u64ToF32(2n ** 63n + 2n ** 39n + 1n)).toBe(2 ** 63 + 2 ** 40);
    expect(u64ToF32(2n ** 63n + 2n ** 39n)).toBe(2 ** 63);
  });

  it('f32 to integers truncate and saturate; NaN is 0', () => {
    expect([1.9, -1.9, 3e9, -3e9, NaN, Infinity, -Infinity].map(f32ToI32)).toEqual([
      1, -1, 2147483647, -2147483648, 0, 2147483647, -2147483648,
    ]);
    expect([1.9, -1.9, 3e9, 5e9, NaN, Infinity].map((x) => f32ToU32(x) >>> 0)).toEqual([
      1, 0, 3000000000, 4294967295, 0, 4294967295,
    ]);
    expect([1.9, -1.9, 2 ** 40, 2 ** 65, NaN].map(f32ToU64)).toEqual([1n, 0n, 2n ** 40n, 2n ** 64n - 1n, 0n]);
  });
});

describe('integers', () => {
  it('divide as defined, never trapping', () => {
    expect([idiv(7, 0), irem(7, 0), idiv(-2147483648, -1), irem(-2147483648, -1)]).toEqual([
      -1, 7, -2147483648, 0,
    ]);
    expect([udiv(-1, 0), urem(-5, 0), udiv(-1, 2), urem(-1, 10)]).toEqual([-1, -5, 2147483647, 5]);
    expect([idiv(-7, 2), irem(-7, 2)]).toEqual([-3, -1]);
  });

  it('count bits', () => {
    const popc = (x: number) => computePure('popc', 'u32', [x]);
    expect([0, 1, 0xffff_ffff, 0x55555555, 0x8000_0000].map(popc)).toEqual([0, 1, 32, 16, 1]);
  });
});

it('the smaller and larger of two floats is the number, where one is NaN', () => {
  expect([fmin(NaN, 1), fmin(1, NaN), fmax(NaN, 1), fmax(2, 1), fmin(2, 1)]).toEqual([1, 1, 1, 2, 1]);
});
