import { kernel, pointer } from '../../src/lang/index.js';
import type { exp } from '../../src/moe/families/common/exp.js';
import { download, launch, machineOf, upload } from '../gpu/sim/harness.js';

/** A device function of one number, as exp and silu are. */
type OfOne = typeof exp;

/** What the function makes of each value, on the simulated machine. */
export async function ofEach(f: OfOne, values: Float32Array): Promise<Float32Array> {
  const each = kernel(
    { name: 'of_each', params: { x: pointer('f32'), n: 'u32' }, using: { f } },
    (g, { x, n }, u) => {
      for (let i = g.threadIdx.x; i < n; i += g.blockDim.x) g.store(x.at(i), u.f({ x: g.load(x.at(i)) }));
    },
  );
  const { ranks } = machineOf({ ranks: 1 });
  const x = upload(ranks[0]!, values);
  await launch(ranks[0]!, each.ir(), { block: 32 }, { x, n: values.length });
  return new Float32Array(await download(ranks[0]!, x));
}

/** The distance between neighbouring f32 there; subnormal ones are 2^-149 apart. */
const unitAt = (value: number): number => 2 ** Math.max(-149, Math.floor(Math.log2(Math.abs(value))) - 23);

/** The largest distance from the right results, in units in the last place. */
export async function worstUnits(
  f: OfOne,
  right: (x: number) => number,
  values: Float32Array,
): Promise<number> {
  const results = await ofEach(f, values);
  return Math.max(...Array.from(values, (x, i) => Math.abs(results[i]! - right(x)) / unitAt(right(x))));
}
