/**
 * An MLP by Heddle's kernels for Hopper's tensor cores: two launches; rows of a plan are sorted before where there are many. Where
 * blocks share units, another launch behind each adds up what they leave.
 */
import { callSite } from '../../gpu/index.js';
import { scaleBlock } from '../layer/index.js';
import { wrap } from '../rounds/tensor.js';
import { Fp8Rows } from './fp8-rows.js';
import { hopperThreads } from './kernels/hopper/kernel.js';
import { addingThreads, type HopperParts, hopperKernels } from './kernels/hopper/kernels.js';
import type { Products, ProductsOf } from './products.js';

/** Blocks on a simulated GPU. */
const simulated = 4;

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
  const most = device.kind === 'sim' ? simulated : device.multiprocessors;
  const blocks = Math.min(most, sms ?? most);
  const kernels = hopperKernels({
    ...{ hidden, inner, experts, kind: device.kind, blocks },
    dtype,
    of: routed === null ? 'all' : 'plan',
    topK: routed?.topK ?? 1,
    rows: routed?.evenRows ?? rows,
  });
  const launch = {
    grid: blocks,
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
  const [upParts, downParts] = await Promise.all([
    partsOf(of, kernels.parts.gateUp, { blocks, columns: 2 * inner }),
    partsOf(of, kernels.parts.down, { blocks, columns: hidden }),
  ]);
  for (const [{ set }, matrix, scales] of [
    [up, weights.gateUp, weights.gateUpScales] as const,
    [down, weights.down, weights.downScales] as const,
  ]) {
    const [wide, deep] = matrix.shape.slice(-2) as [number, number];
    set.weights({ address: matrix.data, extents: [experts * wide, deep] });
    if (scaled) set.weightScales(0, scales!.data);
  }
  const sites = [up, down, upParts?.add, downParts?.add].flatMap((site) => site ?? []);
  if (routed !== null) {
    for (const { set } of sites) {
      set.counts(0, routed.plan.planned.counts.data);
      set.offsets(0, routed.plan.planned.offsets.data);
    }
  }
  const makesRows = upParts?.add ?? up;
  makesRows.set.to(between.rows.data);
  if (upParts !== null) up.set.to(upParts.sums.data);
  if (downParts !== null) down.set.to(downParts.sums.data);
  down.set.rows(0, { address: between.rows.data, extents: [rows, inner] });
  if (scaled) {
    makesRows.set.toScales(0, between.scales!.data);
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
      for (const { set } of sites) set.count(0, typeof count === 'number' ? count : 0);
    },
    widen(from, stream) {
      const came = rounded === null ? from : rounded.payloads(from, stream).x;
      // No rows are no tensor: then any will do, for nobody looks at it.
      const [address, count] = came.shape[0] === 0 ? [weights.gateUp.data, 1] : [came.data, came.shape[0]!];
      if (kernels.gathers) up.set.from(0, from.data);
      else up.set.rows(0, { address, extents: [count, hidden] });
      up.launch(stream);
      upParts?.add.launch(stream);
    },
    narrow(to, stream) {
      (downParts?.add ?? down).set.to(to.data);
      down.launch(stream);
      downParts?.add.launch(stream);
    },
    dispose: () => rounded?.dispose(),
  };
}

/** Where blocks share units: the sums that they leave, and the launch that adds them up. */
async function partsOf(
  { device, own }: ProductsOf,
  shared: HopperParts | null,
  { blocks, columns }: { readonly blocks: number; readonly columns: number },
) {
  if (shared === null) return null;
  const sums = own(shared.parts * columns, 'sums of parts', 'f32');
  // It waits for the product before it, so whatever follows may begin early.
  const launch = { grid: blocks, block: addingThreads[device.kind], programmatic: true, rank: 0 };
  const add = await callSite(device, shared.add, launch);
  add.set.sums(sums.data);
  return { sums, add };
}
