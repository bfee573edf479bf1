import { expect, test } from 'vitest';
import { kernel, pointer } from '../../../src/lang/index.js';
import { exp } from '../../../src/moe/families/common/exp.js';
import { download, launch, machineOf, upload } from '../../gpu/sim/harness.js';

const each = kernel(
  { name: 'exp_of_each', params: { x: pointer('f32'), n: 'u32' }, using: { exp } },
  (g, { x, n }, u) => {
    for (let i = g.threadIdx.x; i < n; i += g.blockDim.x) g.store(x.at(i), u.exp({ x: g.load(x.at(i)) }));
  },
);

async function expOf(values: Float32Array): Promise<Float32Array> {
  const { ranks } = machineOf({ ranks: 1 });
  const x = upload(ranks[0]!, values);
  await launch(ranks[0]!, each.ir(), { block: 32 }, { x, n: values.length });
  return new Float32Array(await download(ranks[0]!, x));
}

/** The distance between neighbouring f32 there; subnormal ones are 2^-149 apart. */
const unitAt = (value: number): number => 2 ** Math.max(-149, Math.floor(Math.log2(value)) - 23);

test('e^x is within 2 units in the last place, from the smallest result to the largest', async () => {
  const values = Float32Array.from({ length: 20_000 }, (_, i) => -103.9 + i * (192.6 / 20_000));
  const results = await expOf(values);
  let worst = 0;
  for (const [i, x] of values.entries()) {
    const right = Math.exp(x);
    worst = Math.max(worst, Math.abs(results[i]! - right) / unitAt(right));
  }
  expect(worst).toBeLessThan(2);
});

test('what is out of range is +0 or infinity, and NaN stays NaN', async () => {
  const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;
  const values = Float32Array.of(-infinity, -1e30, -104.5, -0, 0, 88.8, 1e30, infinity, nan);
  const expected = Float32Array.of(0, 0, 0, 1, 1, infinity, infinity, infinity, nan);
  expect(await expOf(values)).toEqual(expected);
});
