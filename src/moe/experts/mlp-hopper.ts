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

/** Rows between the GEMMs, sorted ones before them, and what rounds the rows of one expert; each where there is a need for it. */
async function rowsFor(
  { device, hidden, inner, rows, weights, routed, made, own }: ProductsOf,
  gathers: boolean,
) {
  const { dtype } = weights.gateUp;
  const scaled = dtype === 'e4m3';
  const scalesOf = (columns: number, purpose: string) =>
    scaled ? own(columns / scaleBlock, purpose, 'f32') : null;
  return {
    between: { rows: own(inner, 'inner rows', dtype), scales: scalesOf(inner, 'scales of inner rows') },
    sorted:
      made === null || gathers
        ? null
        : { rows: wrap(made.data, dtype, [rows, hidden]), scales: scalesOf(hidden, 'scales of sorted rows') },
    rounded: routed === null && scaled ? await Fp8Rows.create(device, rows, hidden) : null,
  };
}

/** Null where the GPU is no Hopper, or where rows are e4m3 and weights are not. */
export async function hopperProducts(of: ProductsOf): Promise<Products | null> {
  const { device, hidden, inner, rows, sms, weights, routed } = of;
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
  const { between, sorted, rounded } = await rowsFor(of, kernels.gathers);
  const [up, down] = await Promise.all([
    callSite(device, kernels.gateUp, launch),
    callSite(device, kernels.down, launch),
  ]);
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
  down.set.rows(0, { address: between.rows.data, extents: [rows, inner] });
  if (scaled) {
    up.set.toScales(0, between.scales!.data);
    down.set.rowScales(0, between.scales!.data);
    const arrived = sorted?.scales ?? rounded?.scales ?? routed?.scales;
    up.set.rowScales(0, arrived!.data);
  }
  if (kernels.gathers) up.set.routes(0, routed!.plan.planned.routes.data);
  return {
    instructions: 'wgmma',
    rowUnit: kernels.rowUnit,
    sorted,
    take(count) {
      if (routed !== null) return;
      for (const { set } of [up, down]) set.count(0, typeof count === 'number' ? count : 0);
    },
    widen(from, stream) {
      const came = rounded === null ? from : rounded.payloads(from, stream).x;
      // No rows are no tensor: then any will do, for nobody looks at it.
      const [address, count] = came.shape[0] === 0 ? [weights.gateUp.data, 1] : [came.data, came.shape[0]!];
      if (kernels.gathers) up.set.from(0, from.data);
      else up.set.rows(0, { address, extents: [count, hidden] });
      up.launch(stream);
    },
    narrow(to, stream) {
      down.set.to(to.data);
      down.launch(stream);
    },
    dispose: () => rounded?.dispose(),
  };
}
