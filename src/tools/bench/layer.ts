/**
 * A whole MoE layer: what its parts take, one by one, and all of it in the ways in which dispatch and combine can lie in
 * it: in a row, with the shared expert beside them, in two chunks, and with NCCL in their place.
 */

import { mlpParts } from '../../moe/experts/index.js';
import { bytesOfWeight, layerInside, MoeLayer, type MoeLayerOptions, readBits } from '../../moe/index.js';
import type { Bits } from '../../moe/layer/index.js';
import type { World } from '../../net/world/index.js';
import { compareBits, compareClosely } from '../../verify/testing/index.js';
import { type Bounds, boundsColumns, boundsOf, measureRates, type Rates } from './bounds.js';
import { layerInWords, percent, powerColumns } from './columns.js';
import { expertFlops, flopsColumns } from './gemm.js';
import { type Rig, tensorsOf } from './inputs.js';
import { createLayerData, type LayerData, type LayersPlan, saidOf } from './layer-data.js';
import { joinNccl, ncclRound } from './nccl.js';
import type { NcclCommunicator } from './nccl-library.js';
import { type Bench, type Tell, wrongResult } from './run.js';
import { type Spread, slowest } from './statistics.js';
import type { Grouping, Steps } from './timing.js';
import { routeSets, workload } from './workload.js';

interface LayerBenchPlan extends LayersPlan {
  readonly nccl: boolean;
  /** Tokens have the same bits in every batch. */
  readonly invariant: boolean;
}

/** The parts of a layer, then the ways in which all of it is measured; each with the head of its column. */
const heads = {
  router: 'router',
  'dispatch + combine': 'd + c',
  plan: 'plan',
  experts: 'experts',
  shared: 'shared',
  'in a row': 'in a row',
  beside: 'beside',
  'two chunks': 'two',
  'one-sided, in a row': 'one-sided',
  'NCCL, in a row': 'NCCL',
};
type Times = Partial<Record<keyof typeof heads, Spread>>;

/** Times in µs; of simulated machines steps, which say nothing. */
type LayerPoint = Awaited<ReturnType<typeof measure>>;

type LayerMembers = ReturnType<typeof saidOf> & Required<Pick<LayerBenchPlan, 'invariant' | 'sustained'>>;

interface Tools extends Rig {
  readonly data: LayerData;
  readonly plan: LayerBenchPlan;
  readonly nccl: NcclCommunicator | null;
  readonly rates: Rates;
}

type Prepared = ReturnType<typeof prepare>;

function prepare(tools: Tools, tokens: number) {
  const { data, plan } = tools;
  const { family, rows, invariant } = plan;
  const tensors = tensorsOf(tools, 1);
  const shape = [tokens, data.model.hidden];
  const x = tensors.rows(shape);
  const options: MoeLayerOptions = {
    ...{ model: data.model, maxTokens: tokens, rows, invariant, ...data.weights },
    ...(family !== undefined && { family }),
  };
  return { ...tools, tokens, tensors, x, out: tensors.empty('bf16', shape), options };
}

async function measure(bench: Prepared) {
  const { tokens, plan, nccl, options, data } = bench;
  const { world } = bench.timing;
  const ways: Times = {};
  const layer = await MoeLayer.create(world, { ...options, overlap: false });
  const first = await whole(bench, layer);
  ways['in a row'] = first.time;
  const { parts, rows, flops, bounds } = await partsOf(bench, layer);
  if (nccl !== null) ways['NCCL, in a row'] = await withNccl(bench, layer, nccl);
  const { family, why } = layer;
  await layer.dispose();
  const others: readonly (readonly [keyof Times, Partial<MoeLayerOptions>])[] = [
    ...(data.model.sharedInner === undefined ? [] : [['beside', {}] as const]),
    ...(tokens < 2 ? [] : [['two chunks', inTwo(tokens)] as const]),
    ...(family === 'one-sided'
      ? []
      : [['one-sided, in a row', { overlap: false, family: 'one-sided' }] as const]),
  ];
  for (const [way, how] of others) {
    const other = await MoeLayer.create(world, { ...options, ...how });
    const { time, bits } = await whole(bench, other, how.rounds);
    // A chunk may have so few rows that blocks share sums, which are then added in another order, unless they are invariant.
    const compared =
      how.rounds === undefined || plan.invariant
        ? compareBits('rows', 'bf16', bits, first.bits)
        : compareClosely('rows', 'bf16', bits, first.bits, undefined, 2 ** -6);
    if (compared.different > 0)
      throw wrongResult(`two ways of a layer of ${tokens} tokens a rank give different results`);
    ways[way] = time;
    await other.dispose();
  }
  const median = (part: keyof Times): number => parts[part]?.median ?? 0;
  const computing = median('router') + median('experts') + median('shared');
  const row = first.time.median;
  const fastest = fastestOf(ways).median;
  return {
    // Rows and operations are those of rank 0's experts; the bounds are of the ranks that have most, and count a shared expert too.
    ...{ tokens, family, why, parts, ways, rows, bounds, ...flops },
    // Tokens of all ranks together, by the fastest of Heddle's ways. A simulated step is no time.
    ...(plan.device === 'cuda' && { tokensPerSecond: (plan.ranks * tokens) / (fastest * 1e-6) }),
    // Router, experts and shared expert as a part of the layer in a row; and the part of the fastest way in which nothing is computed.
    ...{ computed: computing / row, exposed: 1 - computing / fastest },
  };
}

/** The fastest of Heddle's ways by the family that the layer has. */
const fastestOf = (ways: Times): Spread =>
  [ways['in a row'], ways.beside, ways['two chunks']]
    .filter((way) => way !== undefined)
    .reduce((a, b) => (b.median < a.median ? b : a));

/** Buffers for two chunks of so many tokens, both of them in flight. */
const inTwo = (tokens: number): Partial<MoeLayerOptions> => ({
  rounds: 2,
  maxTokens: Math.ceil(tokens / 2),
});

async function traced({ timing, x, out, tokens, options }: Prepared, tell: Tell<never>): Promise<void> {
  const how = tokens < 2 ? {} : inTwo(tokens);
  const layer = await MoeLayer.create(timing.world, { ...options, ...how });
  await tell.trace(() => layer.forward(x, out, timing.stream, { chunks: how.rounds ?? 1 }));
  await layer.dispose();
}

const time = ({ timing }: Prepared, steps: Steps, grouping?: Grouping): Promise<Spread> =>
  timing.time(timing.world.device.kind === 'cuda' ? 10 : 1, steps, grouping);

async function whole(bench: Prepared, layer: MoeLayer, chunks = 1): Promise<{ time: Spread; bits: Bits }> {
  const { timing, x, out } = bench;
  const spread = await time(bench, [() => layer.forward(x, out, timing.stream, { chunks })]);
  await layer.synchronize(timing.stream);
  return { time: spread, bits: await readBits(out, timing.stream) };
}

/** Each part of a layer by itself, on what a forward left behind. */
async function partsOf(bench: Prepared, layer: MoeLayer) {
  const { x, out, data } = bench;
  const { stream } = bench.timing;
  const round = layerInside(layer).rounds[0]!;
  const { router, ep, plan, experts, shared } = round;
  const { received } = ep;
  const inputs = { ...router.route(x, stream), payloads: { x } };
  const dispatchAndCombine = await time(bench, [
    () => {
      ep.dispatch(inputs, stream);
      ep.combine(out, stream, experts.made ?? undefined);
    },
  ]);
  const { total, counts } = await plan.sizes(stream);
  const flops = expertFlops(data.model, counts, mlpParts(experts).products.rowUnit);
  const parts: Times = {
    router: await time(bench, [() => void router.route(x, stream)]),
    'dispatch + combine': dispatchAndCombine,
    plan: await time(bench, [() => void plan.plan(received, stream)]),
    experts: await time(bench, [() => experts.run(received, stream, bench.tokens)]),
    ...(shared && { shared: await time(bench, [() => shared.begin(x, out, stream)]) }),
  };
  return { parts, rows: total, flops, bounds: await layerBounds(bench, counts) };
}

/** The experts that get rows, and the rows, of the ranks that have most. Every rank calls it. */
export async function mostOfRanks(world: Pick<World, 'allGather'>, counts: Uint32Array) {
  const mine = [counts.filter((rows) => rows > 0).length, counts.reduce((sum, some) => sum + some, 0)];
  return (await slowest(world, Float64Array.from(mine))) as [used: number, rows: number];
}

async function layerBounds(bench: Prepared, counts: Uint32Array): Promise<Bounds> {
  const { rates, tokens, plan } = bench;
  const { hidden, inner, sharedInner = 0 } = bench.data.model;
  const [used, rows] = await mostOfRanks(bench.timing.world, counts);
  return boundsOf(rates, plan.weights === 'fp8' ? 'fp8' : 'bf16', {
    weightBytes: 3 * bytesOfWeight[plan.weights] * hidden * (used * inner + sharedInner),
    flops: 6 * hidden * (rows * inner + tokens * sharedInner),
  });
}

/** Times the layer with NCCL's exchange of as many rows, whose counts the host knows for free: a lower bound. */
async function withNccl(bench: Prepared, layer: MoeLayer, communicator: NcclCommunicator): Promise<Spread> {
  const { timing, tokens, plan, x, out } = bench;
  const { hidden, experts, topK } = bench.data.model;
  const of = workload({
    ...{ profile: 'custom', hidden, experts, topK },
    ...{ ranks: plan.ranks, dtype: plan.rows, combineDtype: 'bf16', router: 'uniform', seed: 1 },
  });
  const round = ncclRound(bench, communicator, of, routeSets(of, tokens, 1), 1);
  const [dispatch, combine] = round.steps('sparse', ['dispatch', 'combine']);
  const batch = layerInside(layer).rounds[0]!;
  const { stream } = timing;
  const steps = [
    () => void batch.router.route(x, stream),
    dispatch!,
    () => batch.runExperts(stream),
    combine!,
    () => batch.shared?.begin(x, out, stream),
  ];
  const spread = await time(bench, steps, round.grouping);
  round.free();
  return spread;
}

/** @throws UnavailableError without enough GPUs, HeddleError where two ways give different bits. */
export const layerBench: Bench<LayerBenchPlan, LayerPoint, LayerMembers> = {
  format: 'heddle-bench-layer/1',
  setting: ({ ranks }) => ({ ranks }),
  members(plan) {
    const { model, ...said } = saidOf(plan);
    return { ...said, invariant: plan.invariant, sustained: plan.sustained === true, model };
  },
  async measure(rig, plan, tell) {
    const data = createLayerData(rig, plan);
    const rates = await measureRates(rig.timing);
    const nccl = plan.nccl && plan.device === 'cuda' ? await joinNccl(rig.timing) : null;
    for (const tokens of plan.tokens) {
      tell.doing(`${tokens} tokens`);
      const bench = prepare({ ...rig, data, plan, nccl, rates }, tokens);
      tell.point(await measure(bench));
      if (plan.trace) await traced(bench, tell);
      bench.tensors.free();
    }
    nccl?.destroy();
    data.free();
  },
  heading: ({ model, ranks, rows, weights, invariant }) =>
    `${layerInWords({ ...model, ranks })}; inner ${model.inner}, rows ${rows}, weights ${weights}${invariant ? ', invariant' : ''}`,
  columns: ({ sustained }) => [
    { head: 'tokens', cell: ({ tokens }) => String(tokens) },
    ...Object.entries(heads).map(([name, head]) => ({
      head,
      cell: ({ parts, ways }: LayerPoint) =>
        ({ ...parts, ...ways })[name as keyof Times]?.median.toFixed(1) ?? '–',
    })),
    ...powerColumns(sustained, ({ ways }: LayerPoint) => fastestOf(ways)),
    { head: 'tokens/s', rate: true, cell: ({ tokensPerSecond }) => tokensPerSecond!.toExponential(2) },
    { head: 'exposed', cell: ({ exposed }) => percent(exposed) },
    ...boundsColumns(({ bounds }: LayerPoint) => bounds),
    ...flopsColumns((point: LayerPoint) => point),
  ],
  lines: (point) => [point],
};
