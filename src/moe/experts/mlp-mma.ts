/**
 * An MLP by Heddle's kernels for any GPU: two launches, rows gathered from where dispatch left them. With weights of MXFP4 kernels for few rows
 * stand by where there may be many.
 */
import { ArgumentError } from '../../base/errors.js';
import { callSite, type Stream } from '../../gpu/index.js';
import type { Tensor } from '../rounds/tensor.js';
import { type MlpShape, mlpKernels } from './kernels/gemm/kernels.js';
import { groupRows } from './kernels/hopper/shape.js';
import { isPacked, mlpShapeOf, type Products, type ProductsOf } from './products.js';

export async function mmaProducts(of: ProductsOf): Promise<Products> {
  const { device, inner, weights, routed, own } = of;
  if (weights.gateUp.dtype === 'e4m3')
    throw new ArgumentError('gateUp', 'e4m3', `bf16 on a ${device.description}: e4m3 needs a Hopper GPU`);
  const scaled = routed !== null && routed.scales !== null;
  const shape = mlpShapeOf(of, scaled ? 'e4m3' : 'bf16');
  const between = own(inner, 'inner rows');
  const usual = await formOf(of, shape, between, routed?.plan.planned.counts);
  const byRows = isPacked(weights) && routed ? routed.plan.byRows : null;
  // What the plan counted says which of the two have work.
  const byCount = byRows && [
    await formOf(of, { ...shape, rows: groupRows }, between, byRows.few),
    await formOf(of, shape, between, byRows.many),
  ];
  let forms = [usual];
  return {
    instructions: 'mma.sync',
    rowUnit: usual.rowUnit,
    sorted: null,
    take(count) {
      if (typeof count !== 'number') return;
      if (routed === null) usual.take(count);
      else forms = byCount !== null && count <= routed.fewTokens ? byCount : [usual];
    },
    widen(from, stream) {
      for (const form of forms) form.widen(from, stream);
    },
    narrow(to, stream) {
      for (const form of forms) form.narrow(to, stream);
    },
  };
}

/** Both products, by the kernels for a shape. `counts`: the rows of each expert that they multiply. */
export async function formOf(
  { device, sms, weights, routed }: ProductsOf,
  shape: MlpShape,
  between: Tensor,
  counts: Tensor | undefined,
) {
  const kernels = mlpKernels(shape);
  // One that takes all rows may lie before the receive of a split phase, which begins early, and then finds only what came
  // before a launch that is not programmatic.
  const programmatic = routed !== null;
  const load = ({ kernel, blocks, resident, threads }: (typeof kernels)['down']) => {
    const grid = sms === null ? blocks : Math.min(blocks, sms * resident);
    return callSite(device, kernel, { grid, block: threads, programmatic, rank: 0 });
  };
  const [gateUp, down] = await Promise.all([load(kernels.gateUp), load(kernels.down)]);
  gateUp.set.weights(weights.gateUp.data);
  down.set.weights(weights.down.data);
  if (routed !== null) {
    const { offsets, routes } = routed.plan.planned;
    for (const { set } of [gateUp, down]) {
      set.counts(0, counts!.data);
      set.offsets(0, offsets.data);
    }
    gateUp.set.routes(0, routes.data);
    if (routed.scales !== null) gateUp.set.scales(0, routed.scales.data);
  }
  if (isPacked(weights)) {
    gateUp.set.weightScales(0, weights.gateUpScales!.data);
    down.set.weightScales(0, weights.downScales!.data);
  }
  if (weights.gateUpBias !== undefined) gateUp.set.bias(0, weights.gateUpBias.data);
  if (weights.downBias !== undefined) down.set.bias(0, weights.downBias.data);
  gateUp.set.to(between.data);
  down.set.from(between.data);
  return {
    rowUnit: kernels.rowUnit,
    /** Has so many rows be all there are. */
    take(rows: number): void {
      for (const { set } of [gateUp, down]) set.count(0, rows);
    },
    widen(from: Tensor, stream: Stream): void {
      gateUp.set.from(from.data);
      gateUp.launch(stream);
    },
    narrow(to: Tensor, stream: Stream): void {
      down.set.to(to.data);
      down.launch(stream);
    },
  };
}
