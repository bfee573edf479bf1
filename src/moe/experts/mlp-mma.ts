/** An MLP by Heddle's kernels for any GPU: two launches, rows gathered from where dispatch left them. */
import { ArgumentError } from '../../base/errors.js';
import { callSite } from '../../gpu/index.js';
import { mlpKernels } from './kernels/gemm/kernels.js';
import { mlpShapeOf, type Products, type ProductsOf } from './products.js';

export async function mmaProducts(of: ProductsOf): Promise<Products> {
  const { device, inner, sms, weights, routed, own } = of;
  if (weights.gateUp.dtype === 'e4m3')
    throw new ArgumentError('gateUp', 'e4m3', `bf16 on a ${device.description}: e4m3 needs a Hopper GPU`);
  const scaled = routed !== null && routed.scales !== null;
  const kernels = mlpKernels(mlpShapeOf(of, scaled ? 'e4m3' : 'bf16'));
  // One that takes all rows may lie before the receive of a split phase, which begins early, and then finds only what came
  // before a launch that is not programmatic.
  const programmatic = routed !== null;
  const load = ({ kernel, blocks, resident, threads }: (typeof kernels)['down']) => {
    const grid = sms === null ? blocks : Math.min(blocks, sms * resident);
    return callSite(device, kernel, { grid, block: threads, programmatic, rank: 0 });
  };
  const [gateUp, down] = await Promise.all([load(kernels.gateUp), load(kernels.down)]);
  const between = own(inner, 'inner rows');
  gateUp.set.weights(weights.gateUp.data);
  down.set.weights(weights.down.data);
  if (routed !== null) {
    const { counts, offsets, routes } = routed.plan.planned;
    for (const { set } of [gateUp, down]) {
      set.counts(0, counts.data);
      set.offsets(0, offsets.data);
    }
    gateUp.set.routes(0, routes.data);
    if (routed.scales !== null) gateUp.set.scales(0, routed.scales.data);
  }
  if (weights.gateUpScales !== undefined) gateUp.set.weightScales(0, weights.gateUpScales.data);
  if (weights.downScales !== undefined) down.set.weightScales(0, weights.downScales.data);
  if (weights.gateUpBias !== undefined) gateUp.set.bias(0, weights.gateUpBias.data);
  if (weights.downBias !== undefined) down.set.bias(0, weights.downBias.data);
  gateUp.set.to(between.data);
  down.set.from(between.data);
  return {
    instructions: 'mma.sync',
    rowUnit: kernels.rowUnit,
    sorted: null,
    take(count) {
      if (routed !== null || typeof count !== 'number') return;
      for (const { set } of [gateUp, down]) set.count(0, count);
    },
    widen(from, stream) {
      gateUp.set.from(from.data);
      gateUp.launch(stream);
    },
    narrow(to, stream) {
      down.set.to(to.data);
      down.launch(stream);
    },
  };
}
