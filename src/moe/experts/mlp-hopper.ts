/** An MLP by Heddle's kernels for Hopper's tensor cores: two launches; rows of a plan are sorted before where there are many. */
import { callSite } from '../../gpu/index.js';
import { scaleBlock } from '../layer/index.js';
import { wrap } from '../rounds/tensor.js';
import { Fp8Rows } from './fp8-rows.js';
import { hopperThreads } from './kernels/hopper/kernel.js';
import { hopperKernels } from './kernels/hopper/kernels.js';
import type { Products, ProductsOf } from './products.js';

/** Blocks on a simulated GPU. */
const simulated = 2;

/** Null where the GPU is no Hopper, or where rows are e4m3 and weights are not. */
export async function hopperProducts(of: ProductsOf): Promise<Products | null> {
  const { device, hidden, inner, rows, sms, weights, routed, made, own } = of;
  const scaled = weights.gateUp.dtype === 'e4m3';
  const dtype = scaled ? 'e4m3' : 'bf16';
  const alike = routed === null || (routed.scales !== null) === scaled;
  if (device.capability[0] !== 9 || !alike) return null;
  const experts = routed?.experts ?? 1;
  const kernels = hopperKernels({
    ...{ hidden, inner, experts, kind: device.kind },
    dtype,
    of: routed === null ? 'all' : 'plan',
    topK: routed?.topK ?? 1,
    rows: routed?.evenRows ?? rows,
  });
  const blocks = device.kind === 'sim' ? simulated : device.multiprocessors;
  const launch = {
    grid: Math.min(blocks, sms ?? blocks),
    block: hopperThreads,
    // One that takes all rows may lie before the receive of a split phase, which begins early, and then finds only what came
    // before a launch that is not programmatic.
    programmatic: routed !== null,
    rank: 0,
  };
  const scalesOf = (columns: number, purpose: string) =>
    scaled ? own(columns / scaleBlock, purpose, 'f32') : null;
  const between = { rows: own(inner, 'inner rows', dtype), scales: scalesOf(inner, 'scales of inner rows') };
  const sorted =
    made === null || kernels.gateUp.gathers
      ? null
      : { rows: wrap(made.data, dtype, [rows, hidden]), scales: scalesOf(hidden, 'scales of sorted rows') };
  const rounded = routed === null && scaled ? await Fp8Rows.create(device, rows, hidden) : null;

  const [gathered, tiled, down] = await Promise.all([
    kernels.gateUp.gathers ? callSite(device, kernels.gateUp.kernel, launch) : null,
    kernels.gateUp.gathers ? null : callSite(device, kernels.gateUp.kernel, launch),
    callSite(device, kernels.down, launch),
  ]);
  const up = (gathered ?? tiled)!;
  for (const [{ set }, matrix, scales] of [
    [up, weights.gateUp, weights.gateUpScales] as const,
    [down, weights.down, weights.downScales] as const,
  ]) {
    const [wide, deep] = matrix.shape.slice(-2) as [number, number];
    set.weights({ address: matrix.data, extents: [experts * wide, deep] });
    if (scaled) set.weightScales(0, scales!.data);
    if (routed !== null) {
      set.counts(0, routed.plan.planned.counts.data);
      set.offsets(0, routed.plan.planned.offsets.data);
    }
  }
  up.set.to(between.rows.data);
  down.set.rows({ address: between.rows.data, extents: [rows, inner] });
  if (scaled) {
    up.set.toScales(0, between.scales!.data);
    down.set.rowScales(0, between.scales!.data);
    const arrived = sorted?.scales ?? rounded?.scales ?? routed?.scales;
    up.set.rowScales(0, arrived!.data);
  }
  gathered?.set.routes(0, routed!.plan.planned.routes.data);
  return {
    instructions: 'wgmma',
    rowUnit: kernels.rowUnit,
    sorted,
    take(count) {
      if (routed !== null) return;
      for (const site of [tiled, down]) site?.set.count(0, typeof count === 'number' ? count : 0);
    },
    widen(from, stream) {
      gathered?.set.from(from.data);
      const came = rounded === null ? from : rounded.payloads(from, stream).x;
      // No rows are no tensor: then any will do, for nobody looks at it.
      const [address, count] = came.shape[0] === 0 ? [weights.gateUp.data, 1] : [came.data, came.shape[0]!];
      tiled?.set.rows({ address, extents: [count, hidden] });
      up.launch(stream);
    },
    narrow(to, stream) {
      down.set.to(to.data);
      down.launch(stream);
    },
    dispose: () => rounded?.dispose(),
  };
}
