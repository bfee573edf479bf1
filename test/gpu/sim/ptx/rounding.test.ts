/** Rounding in every direction, against comparisons that are exact in doubles. */
import { describe, expect, test } from 'vitest';
import { bf16ToF32, f16ToF32, f32ToBf16, f32ToF16 } from '../../../../src/gpu/index.js';
import { Random } from '../../../../src/gpu/sim/index.js';
import { type Direction, type Format, operate, rounded } from '../../../../src/gpu/sim/ptx/rounding.js';

const random = new Random(2, 5, 7);
const view = new DataView(new ArrayBuffer(4));
/** Any finite f32, the subnormal ones often enough. */
function single(): number {
  view.setUint32(0, random.below(2 ** 32) & (random.below(4) === 0 ? 0x80ffffff : 0xff7fffff));
  return view.getFloat32(0);
}

describe('to another format', () => {
  test.each<[Format, (x: number) => number]>([
    ['f32', Math.fround],
    ['f16', (x) => f16ToF32(f32ToF16(x))],
    ['bf16', (x) => bf16ToF32(f32ToBf16(x))],
  ])('%s', (format, nearest) => {
    for (let i = 0; i < 2000; i++) {
      const wide = single() * (1 + random.uniform());
      const value = format === 'f32' ? wide : Math.fround(wide) / (random.below(2) === 0 ? 1 : 2 ** 120);
      const to = (mode: Direction) => rounded(value, format, mode);
      expect(to('rn')).toBe(nearest(value));
      const [down, up] = [to('rm'), to('rp')];
      expect(down <= value && value <= up).toBe(true);
      // Nothing lies between.
      if (down !== value) expect([down, up]).toContain(to('rn'));
      else expect(up).toBe(value);
      expect(to('rz')).toBe(value > 0 ? down : up);
      if (Number.isFinite(down) && Number.isFinite(up))
        expect(rounded((down + up) / 2, format, 'rn')).toBeOneOf([down, up]);
    }
  });
});

describe('f32', () => {
  /** Whether what an operation gives is at most, or at least, what it stands for: -1, 0, 1. */
  test.each<['add' | 'mul' | 'div' | 'sqrt', (result: number, a: number, b: number) => number]>([
    ['mul', (result, a, b) => Math.sign(result - a * b)],
    // Products of two f32 are exact.
    ['div', (result, a, b) => Math.sign(result * b - a) * Math.sign(b)],
    ['sqrt', (result, a) => Math.sign(result * result - a)],
  ])('%s', (op, compare) => {
    for (let i = 0; i < 2000; i++) {
      const [a, b] = [op === 'sqrt' ? Math.abs(single()) : single(), single()];
      if (b === 0) continue;
      const [down, up] = (['rm', 'rp'] as const).map((mode) => operate(op, 'f32', mode, a, b)) as [
        number,
        number,
      ];
      if (Number.isFinite(down)) expect(compare(down, a, b)).toBeLessThanOrEqual(0);
      if (Number.isFinite(up)) expect(compare(up, a, b)).toBeGreaterThanOrEqual(0);
      expect(rounded((down + up) / 2, 'f32', 'rn')).toBeOneOf([down, up, Number.NaN]);
      const plain = { add: a + b, mul: a * b, div: a / b, sqrt: Math.sqrt(a) }[op];
      expect(operate(op, 'f32', 'rn', a, b)).toBe(Math.fround(plain));
    }
  });
});

test('fma of f64: numbers of middling size are rounded as the same numbers scaled, for which no shorter way is taken', () => {
  const number = () => (2 * random.below(2 ** 27) - 2 ** 27 + 1) * 2 ** random.below(9);
  for (let i = 0; i < 2000; i++) {
    const [a, b] = [number(), number()];
    // Sums that cancel, ties, and what lies beside a tie.
    const c = [number(), -a * b, a * b * 3 * 2 ** -54, a * b * 2 ** 53, a * number() * 2 ** -130][i % 5]!;
    const [near, scaled] = [1, 2 ** 500].map((by) => operate('fma', 'f64', 'rn', a * by, b, c * by));
    expect(near).toBe(scaled! / 2 ** 500);
  }
});
