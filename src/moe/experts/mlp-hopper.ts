/**
 * An MLP by Heddle's kernels for Hopper's tensor cores: two launches; rows of a plan are sorted before where there are many. Where
 * blocks share units, another launch behind each adds up what they leave. Kernels for few rows stand by where there may be many.
 */
import { type CallSite, callSite, type LaunchShape, type Stream } from '../../gpu/index.js';
import { type Dtype, scaleBlock } from '../layer/index.js';
import { type Tensor, wrap } from '../rounds/tensor.js';
import type { ExpertsPlan } from './experts-plan.js';
import type { MlpShape } from './kernels/gemm/kernels.js';
import { hopperThreads } from './kernels/hopper/kernel.js';
import { addingThreads, hopperKernels } from './kernels/hopper/kernels.js';
import { groupRows } from './kernels/hopper/shape.js';
import { rowsToFp8 } from './kernels/rows-to-fp8.js';
import { formOf as mmaForm } from './mlp-mma.js';
import { isPacked, mlpShapeOf, type Products, type ProductsOf, type RowsOf } from './products.js';

/** Blocks on a simulated GPU: as many as share units there; few otherwise, so that each takes several. */
const simulated = 4;
const simulatedAlone = 2;

/** Allocates rows between the GEMMs; sorted ones before them, unless they are gathered; and rounded ones, where no plan brings rows. */
export function hopperRows({ hidden, inner, rows, made, own }: RowsOf, dtype: Dtype, gathers: boolean) {
  const scaled = dtype === 'e4m3';
  const scalesOf = (columns: number, purpose: string) =>
    scaled ? own(columns / scaleBlock, purpose, 'f32') : null;
  const sorts = made !== null && !gathers;
  return {
    between: { rows: own(inner, 'inner rows', dtype), scales: scalesOf(inner, 'scales of inner rows') },
    sorted: sorts
      ? { rows: wrap(made.data, dtype, [rows, hidden]), scales: scalesOf(hidden, 'scales of sorted rows') }
      : null,
    rounded:
      made === null && scaled
        ? { rows: own(hidden, 'rows as fp8', dtype), scales: scalesOf(hidden, 'scales of rows')! }
        : null,
  };
}

/** Prepares what rounds so many rows of bf16: the next call writes over them. */
async function rounding(
  { device, hidden }: ProductsOf,
  to: { readonly rows: Tensor; readonly scales: Tensor },
) {
  const { kernel, blocks, threads } = rowsToFp8[device.kind];
  const site = await callSite(device, kernel, { grid: blocks, block: threads, programmatic: true, rank: 0 });
  site.set.to(to.rows.data);
  site.set.scales(to.scales.data);
  return (from: Tensor, tokens: number, stream: Stream): Tensor => {
    site.set.from(from.data);
    site.set.units((tokens * hidden) / 16);
    site.launch(stream);
    return wrap(to.rows.data, 'e4m3', [tokens, hidden]);
  };
}

/** Null where the GPU is no Hopper, or where rows are e4m3 and weights are not. */
export async function hopperProducts(of: ProductsOf): Promise<Products | null> {
  const { device, weights, routed } = of;
  const scaled = weights.gateUp.dtype === 'e4m3';
  const alike = routed === null || (routed.scales !== null) === scaled;
  if (device.capability[0] !== 9 || !alike) return null;
  const multiprocessors = device.kind === 'sim' ? simulated : device.multiprocessors;
  const mlp = mlpShapeOf(of, scaled ? 'e4m3' : 'bf16', multiprocessors);
  const kernels = hopperKernels(mlp);
  const memory = hopperRows(of, mlp.dtype, kernels.gathers);
  const { sorted, rounded } = memory;
  const round = rounded && (await rounding(of, rounded));
  const usual = await formOf(of, mlp, memory);
  const { byRows = null } = routed?.plan ?? {};
  const byCount = byRows && (await formsByCount(of, byRows, mlp, memory));
  let taken = 0;
  let forms: readonly Pick<typeof usual, 'widen' | 'narrow'>[] = [usual];
  return {
    instructions: 'wgmma',
    rowUnit: kernels.rowUnit,
    get sorted() {
      return forms.length === 1 ? sorted : null;
    },
    take(count) {
      const tokens = typeof count === 'number' ? count : null;
      if (routed === null) {
        taken = tokens ?? 0;
        usual.take(taken);
      } else forms = byCount !== null && tokens !== null && tokens <= routed.fewTokens ? byCount : [usual];
    },
    widen(from, stream) {
      const came = round === null ? from : round(from, taken, stream);
      for (const form of forms) form.widen(came, stream);
    },
    narrow(to, stream) {
      for (const form of forms) form.narrow(to, stream);
    },
  };
}

/**
 * For rows of which few are expected, where many may come: kernels for few rows, and kernels for many that find them by their routes too, so that
 * nothing is sorted for those that have no work. Both are launched; what the plan counted says which of them have work.
 */
async function formsByCount(
  of: ProductsOf,
  { few, many, rows }: NonNullable<ExpertsPlan['byRows']>,
  mlp: MlpShape,
  memory: ReturnType<typeof hopperRows>,
) {
  const unsorted = { ...memory, sorted: null };
  const ofMany = await formOf(of, { ...mlp, gathers: true }, unsorted);
  ofMany.count(many);
  const shape = { ...mlp, rows: groupRows };
  if (mlp.packed && !mlp.invariant) return [await mmaForm(of, shape, memory.between.rows, few), ofMany];
  const ofFew = await formOf({ ...of, rows }, shape, unsorted);
  ofFew.count(few);
  return [ofFew, ofMany];
}

/** Both products, by the kernels for a shape. */
async function formOf(
  of: ProductsOf,
  mlp: MlpShape,
  { between, sorted, rounded }: ReturnType<typeof hopperRows>,
) {
  const { hidden, inner, rows, sms, weights, routed } = of;
  const { multiprocessors } = mlp;
  const kernels = hopperKernels(mlp);
  const launch = {
    grid: Math.min(multiprocessors, sms ?? multiprocessors),
    block: hopperThreads,
    // One that takes all rows may lie before the receive of a split phase, which begins early, and then finds only what came
    // before a launch that is not programmatic.
    programmatic: routed !== null,
    rank: 0,
  };
  const [up, down] = await Promise.all([
    productOf(of, launch, kernels, 'gateUp'),
    productOf(of, launch, kernels, 'down'),
  ]);
  up.makes.set.to(between.rows.data);
  down.gemm.set.rows(0, { address: between.rows.data, extents: [rows, inner] });
  if (between.scales !== null) {
    // Sums of parts have no scales; what adds them up gives rows theirs.
    up.makes.set.toScales(0, between.scales.data);
    down.gemm.set.rowScales(0, between.scales.data);
    const arrived = sorted?.scales ?? routed?.scales ?? rounded?.scales;
    if (arrived) up.gemm.set.rowScales(0, arrived.data);
  }
  if (kernels.gathers) up.gemm.set.routes(0, routed!.plan.planned.routes.data);
  const sites = [...up.sites, ...down.sites];
  return {
    /** Has the plan's rows be those that these words count. */
    count(counts: Tensor): void {
      for (const { set } of sites) set.counts(0, counts.data);
    },
    /** Has so many rows be all there are. */
    take(rows: number): void {
      for (const { set } of sites) set.count(0, rows);
    },
    widen(from: Tensor, stream: Stream): void {
      // No rows are no tensor: then any will do, for nobody looks at it.
      const [address, count] = from.shape[0] === 0 ? [weights.gateUp.data, 1] : [from.data, from.shape[0]!];
      if (kernels.gathers) up.gemm.set.from(0, from.data);
      else up.gemm.set.rows(0, { address, extents: [count, hidden] });
      for (const site of up.sites) site.launch(stream);
    },
    narrow(to: Tensor, stream: Stream): void {
      down.makes.set.to(to.data);
      for (const site of down.sites) site.launch(stream);
    },
  };
}

type HopperKernels = ReturnType<typeof hopperKernels>;

/** A product: its GEMM; the launch that makes its rows, which is another where blocks share units; and all launches in their order. */
async function productOf(
  { device, weights, routed, own }: ProductsOf,
  launch: LaunchShape,
  kernels: HopperKernels,
  which: 'gateUp' | 'down',
) {
  const parts = kernels.parts[which];
  const few = device.kind === 'sim' && parts === null;
  const grid = few ? Math.min(launch.grid, simulatedAlone) : launch.grid;
  const gemm = await callSite(device, kernels[which], { ...launch, grid });
  const matrix = weights[which];
  const [wide, deep] = matrix.shape.slice(-2) as [number, number];
  const experts = routed?.experts ?? 1;
  const stored = { address: matrix.data, extents: [experts * wide, deep] };
  if (isPacked(weights)) {
    const { data, shape } = weights[`${which}Scales`]!;
    gemm.set.packed(0, stored);
    gemm.set.packedScales(0, { address: data, extents: [experts * shape.at(-2)!, wide] });
  } else gemm.set.weights(0, stored);
  if (matrix.dtype === 'e4m3') gemm.set.weightScales(0, weights[`${which}Scales`]!.data);
  let makes: typeof gemm | CallSite<NonNullable<typeof parts>['add']['params']> = gemm;
  if (parts !== null) {
    const sums = own(parts.parts * wide, 'sums of parts', 'f32');
    gemm.set.to(sums.data);
    // It waits for the GEMM before it, so what follows may begin early.
    const behind = { ...launch, block: addingThreads[device.kind], programmatic: true };
    const add = await callSite(device, parts.add, behind);
    add.set.sums(sums.data);
    makes = add;
  }
  const bias = weights[`${which}Bias`];
  if (bias !== undefined) makes.set.bias(0, bias.data);
  const sites = makes === gemm ? [gemm] : [gemm, makes];
  if (routed !== null) {
    for (const { set } of sites) {
      set.counts(0, routed.plan.planned.counts.data);
      set.offsets(0, routed.plan.planned.offsets.data);
    }
  }
  return { gemm, makes, sites };
}
