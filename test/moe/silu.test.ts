import { expect, test } from 'vitest';
import { kernel, pointer } from '../../src/lang/index.js';
import { silu } from '../../src/moe/experts/kernels/gemm/swiglu.js';
import { download, launch, machineOf, upload } from '../gpu/sim/harness.js';

const each = kernel(
  { name: 'silu_of_each', params: { x: pointer('f32'), n: 'u32' }, using: { silu } },
  (g, { x, n }, u) => {
    for (let i = g.threadIdx.x; i < n; i += g.blockDim.x) g.store(x.at(i), u.silu({ x: g.load(x.at(i)) }));
  },
);

async function siluOf(values: Float32Array): Promise<Float32Array> {
  const { ranks } = machineOf({ ranks: 1 });
  const x = upload(ranks[0]!, values);
  await launch(ranks[0]!, each.ir(), { block: 32 }, { x, n: values.length });
  return new Float32Array(await download(ranks[0]!, x));
}

test.each([
  { limit: 20, units: 8 },
  { limit: 80, units: 24 },
])('silu is within $units units in the last place where |x| ≤ $limit', async ({ limit, units }) => {
  const values = Float32Array.from({ length: 20_000 }, (_, i) => (i / 10_000 - 1) * limit);
  const results = await siluOf(values);
  let worst = 0;
  for (const [i, x] of values.entries()) {
    if (x === 0) continue;
    const right = x / (1 + Math.exp(-x));
    worst = Math.max(
      worst,
      Math.abs(results[i]! - right) / 2 ** (Math.floor(Math.log2(Math.abs(right))) - 23),
    );
  }
  expect(worst).toBeLessThan(units);
});

test('beyond 80, silu is x or next to nothing; 0 stays 0 and NaN stays NaN', async () => {
  const results = await siluOf(Float32Array.of(0, 81, 1e30, Number.POSITIVE_INFINITY, Number.NaN, -81, -200));
  expect(results.slice(0, 5)).toEqual(Float32Array.of(0, 81, 1e30, Number.POSITIVE_INFINITY, Number.NaN));
  for (const small of results.slice(5)) expect(Math.abs(small)).toBeLessThan(1e-32);
});
