import { describe, expect, test } from 'vitest';
import { device } from '../../src/lang/index.js';
import { clamp, silu } from '../../src/moe/experts/kernels/gemm/swiglu.js';
import { ofEach, worstUnits } from './of-each.js';

test.each([
  { limit: 20, units: 8 },
  { limit: 80, units: 24 },
])('silu is within $units units in the last place where |x| ≤ $limit', async ({ limit, units }) => {
  const values = Float32Array.from({ length: 20_000 }, (_, i) => (i / 10_000 - 1) * limit);
  expect(await worstUnits(silu, (x) => x / (1 + Math.exp(-x)), values)).toBeLessThan(units);
});

test('beyond 80, silu is x or next to nothing; 0 stays 0 and NaN stays NaN', async () => {
  const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;
  const results = await ofEach(silu, Float32Array.of(0, 81, 1e30, infinity, nan, -81, -200));
  expect(results.slice(0, 5)).toEqual(Float32Array.of(0, 81, 1e30, infinity, nan));
  for (const small of results.slice(5)) expect(Math.abs(small)).toBeLessThan(1e-32);
});

describe("gpt-oss's activation", () => {
  /** Of a gate, or of what it scales, beside 1. */
  const activate = (of: 'gate' | 'up') =>
    device(
      { params: { x: 'f32' }, returns: 'f32', using: { GATE: of === 'gate' ? 0 : 1, clamp, silu } },
      (g, { x }, u) => {
        const values = g.registers('f32', 2, 1);
        values[u.GATE] = x;
        u.clamp({ values, gate: 0, up: 1 });
        return u.silu({ x: values[0]! }) * values[1]!;
      },
    );
  const whole = (gate: number, up: number): number =>
    ((up + 1) * gate) / (1 + Math.exp(-Math.fround(1.702) * gate));
  const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;

  test('is within 16 units in the last place up to its limits', async () => {
    const values = Float32Array.from({ length: 20_000 }, (_, i) => (i / 10_000 - 1) * 7);
    expect(await worstUnits(activate('gate'), (x) => whole(x, 1), values)).toBeLessThan(16);
    const apart = values.filter((x) => Math.abs(x + 1) > 0.01);
    expect(await worstUnits(activate('up'), (x) => whole(1, x), apart)).toBeLessThan(16);
  });

  test('is that of its limits beyond them; NaN stays NaN', async () => {
    const [most] = await ofEach(activate('gate'), Float32Array.of(7));
    const [low, high] = await ofEach(activate('up'), Float32Array.of(-7, 7));
    expect(await ofEach(activate('gate'), Float32Array.of(7.5, 1e30, infinity, nan))).toEqual(
      Float32Array.of(most!, most!, most!, nan),
    );
    expect(await ofEach(activate('up'), Float32Array.of(-7.5, -infinity, 8, infinity, nan))).toEqual(
      Float32Array.of(low!, low!, high!, high!, nan),
    );
  });
});
