import { expect, test } from 'vitest';
import { silu } from '../../src/moe/experts/kernels/gemm/swiglu.js';
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
