/**
 * A whole MoE layer: what its parts take, one by one, and all of it in the ways in which dispatch and combine can lie in
 * it: in a row, with the shared expert beside them, as two micro-batches, and with NCCL in their place.
 */

import type { Column } from '../../base/table.js';
import { bf16ToF32 } from '../../gpu/index.js';
import { mlpParts } from '../../moe/experts/index.js';
import { bytesOf, layerInside, MoeLayer, type MoeLayerOptions, readBits } from '../../moe/index.js';
import { type MoeModel, scaleBlock } from '../../moe/layer/index.js';
import { type Bounds, boundsColumns, boundsOf, measureRates, type Rates } from './bounds.js';
import { expertFlops, flopsColumns } from './gemm.js';
import { type Look, type Measuring, pointByPoint, type Rig, wrongResult } from './harness.js';
import { tensorsOf } from './inputs.js';
import { createLayerData, inSmall, type LayerData, modelWith } from './layer-data.js';
import { joinNccl, ncclRound } from './nccl.js';
import type { NcclCommunicator } from './nccl-library.js';
import type { Spread } from './statistics.js';
import { layerInWords, percent } from './table.js';
import type { Grouping, Steps } from './timing.js';
import { routeSets, workload } from './workload.js';

interface LayerBenchPlan extends Measuring {
  readonly profile: string;
  readonly ranks: number;
  /** Experts on each rank, instead of the model's. */
  readonly expertsHere: number | null;
  readonly tokens: readonly number[];
  readonly family?: string;
  readonly rows: 'bf16' | 'fp8';
  /** The type of the experts' weights. With fp8 they are e4m3 with scales, and rows travel as e4m3 too. */
  readonly weights: 'bf16' | 'fp8';
  readonly nccl: boolean;
}

const layerParts = ['router', 'dispatch + combine', 'plan', 'experts', 'shared'] as const;
type LayerPart = (typeof layerParts)[number];
const layerWays = [
  'in a row',
  'beside',
  'two micro-batches',
  'one-sided, in a row',
  'NCCL, in a row',
] as const;
type LayerWay = (typeof layerWays)[number];

/** Times in µs; of simulated machines steps, which say nothing. */
export type LayerPoint = Awaited<ReturnType<typeof measure>>;

export type LayerReport = Awaited<ReturnType<typeof benchLayer>>;

/** @throws UnavailableError without enough GPUs, HeddleError where two ways give different bits. */
export async function benchLayer(plan: LayerBenchPlan, on: (point: LayerPoint) => void = () => {}) {
  const { ranks, device } = plan;
  const model = modelFor(plan);
  const results = await pointByPoint('layer', plan, on, async (rig, tell, look) => {
    const data = createLayerData(rig, model, 1, plan.weights);
    const rates = await measureRates(rig.timing);
    const nccl = device === 'cuda' && plan.nccl ? await joinNccl(rig.timing) : null;
    for (const tokens of plan.tokens) {
      const bench = benchOf({ ...rig, data, plan, nccl, rates }, tokens);
      tell(await measure(bench));
      if (plan.trace) await lookAt(bench, look);
      bench.tensors.free();
    }
    nccl?.destroy();
    data.free();
  });
  return { ...results, model: { ...model, name: plan.profile }, ranks };
}

const modelFor = ({ profile, ranks, expertsHere, device, rows }: LayerBenchPlan): MoeModel =>
  device === 'cuda'
    ? modelWith(profile, ranks, expertsHere)
    : inSmall(modelWith(profile, ranks, expertsHere ?? 4), rows === 'fp8' ? scaleBlock : 64);

/** The layer that is measured, in words. */
export function layerHeading(plan: LayerBenchPlan): string {
  const model = modelFor(plan);
  const { profile: name, ranks, rows, weights } = plan;
  return `${layerInWords({ ...model, name, ranks })}; inner ${model.inner}, rows ${rows}, weights ${weights}`;
}

interface Tools extends Rig {
  readonly data: LayerData;
  readonly plan: LayerBenchPlan;
  readonly nccl: NcclCommunicator | null;
  readonly rates: Rates;
}

type Bench = ReturnType<typeof benchOf>;

function benchOf(tools: Tools, tokens: number) {
  const { data, plan } = tools;
  const { family, rows } = plan;
  const tensors = tensorsOf(tools, 1);
  const shape = [tokens, data.model.hidden];
  const x = tensors.filled('bf16', shape);
  const options: MoeLayerOptions = {
    ...{ model: data.model, maxTokens: tokens, rows, ...data.weights },
    ...(family !== undefined && { family }),
  };
  return { ...tools, tokens, tensors, x, out: tensors.empty('bf16', shape), options };
}

async function measure(bench: Bench) {
  const { tokens, plan, nccl, options, data } = bench;
  const { world } = bench.timing;
  const ways: Partial<Record<LayerWay, Spread>> = {};
  const layer = await MoeLayer.create(world, { ...options, overlap: false });
  const first = await whole(bench, layer);
  ways['in a row'] = first.time;
  const { parts, rows, flops, bounds } = await partsOf(bench, layer);
  if (nccl !== null) ways['NCCL, in a row'] = await withNccl(bench, layer, nccl);
  const { family, why } = layer;
  await layer.dispose();
  const others: readonly (readonly [LayerWay, Partial<MoeLayerOptions>])[] = [
    ...(data.model.sharedInner === undefined ? [] : [['beside', {}] as const]),
    ...(tokens < 2 ? [] : [['two micro-batches', { microBatches: 2 }] as const]),
    ...(family === 'one-sided'
      ? []
      : [['one-sided, in a row', { overlap: false, family: 'one-sided' }] as const]),
  ];
  for (const [way, how] of others) {
    const other = await MoeLayer.create(world, { ...options, ...how });
    const { time, bits } = await whole(bench, other);
    const same = how.microBatches === undefined ? first.bits.equals(bits) : areClose(first.bits, bits);
    if (!same) throw wrongResult(`two ways of a layer of ${tokens} tokens a rank give different results`);
    ways[way] = time;
    await other.dispose();
  }
  const median = (part: LayerPart): number => parts[part]?.median ?? 0;
  const computing = median('router') + median('experts') + median('shared');
  const row = ways['in a row'].median;
  const fastest = Math.min(row, ways.beside?.median ?? row, ways['two micro-batches']?.median ?? row);
  return {
    // Rows, bounds and operations are those of rank 0's experts; the bounds count its shared expert too.
    ...{ tokens, family, why, parts, ways, rows, bounds, ...flops },
    // Tokens of all ranks together, by the fastest of Heddle's ways. A simulated step is no time.
    ...(plan.device === 'cuda' && { tokensPerSecond: (plan.ranks * tokens) / (fastest * 1e-6) }),
    // Router, experts and shared expert as a part of the layer in a row; and the part of the fastest way in which nothing is computed.
    ...{ computed: computing / row, exposed: 1 - computing / fastest },
  };
}

async function lookAt({ timing, x, out, tokens, options }: Bench, look: Look): Promise<void> {
  const microBatches = tokens < 2 ? 1 : 2;
  const layer = await MoeLayer.create(timing.world, { ...options, microBatches });
  await look(() => layer.forward(x, out, timing.stream));
  await layer.dispose();
}

const time = ({ timing }: Bench, steps: Steps, grouping?: Grouping): Promise<Spread> =>
  timing.time(timing.world.device.kind === 'cuda' ? 10 : 1, steps, grouping);

async function whole(bench: Bench, layer: MoeLayer): Promise<{ time: Spread; bits: Buffer }> {
  const { timing, x, out } = bench;
  const spread = await time(bench, [() => layer.forward(x, out, timing.stream)]);
  await layer.synchronize(timing.stream);
  return { time: spread, bits: Buffer.from(bytesOf(await readBits(out, timing.stream))) };
}

/** Rows of bf16 that differ by roundings at most: a micro-batch may have so few rows that blocks share sums, which are then added in another order. */
function areClose(one: Buffer, other: Buffer): boolean {
  let [largest, apart] = [0, 0];
  for (let at = 0; at < one.length; at += 2) {
    const [a, b] = [bf16ToF32(one.readUInt16LE(at)), bf16ToF32(other.readUInt16LE(at))];
    largest = Math.max(largest, Math.abs(a));
    apart = Math.max(apart, Math.abs(a - b));
  }
  return apart <= largest / 64;
}

/** Each part of a layer by itself, on what a forward left behind. */
async function partsOf(bench: Bench, layer: MoeLayer) {
  const { x, out, data } = bench;
  const { stream } = bench.timing;
  const { batches, shared } = layerInside(layer);
  const { router, ep, plan, experts } = batches[0]!.parts;
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
  const parts: Partial<Record<LayerPart, Spread>> = {
    router: await time(bench, [() => void router.route(x, stream)]),
    'dispatch + combine': dispatchAndCombine,
    plan: await time(bench, [() => void plan.plan(received, stream)]),
    experts: await time(bench, [() => experts.run(received, stream)]),
    ...(shared && { shared: await time(bench, [() => shared.begin(x, out, stream)]) }),
  };
  return { parts, rows: total, flops, bounds: layerBounds(bench, counts) };
}

function layerBounds({ data, plan: { weights }, rates, tokens }: Bench, counts: Uint32Array): Bounds {
  const { hidden, inner, sharedInner = 0 } = data.model;
  const used = counts.filter((rows) => rows > 0).length;
  const rows = counts.reduce((sum, some) => sum + some, 0);
  return boundsOf(rates, weights, {
    weightBytes: (weights === 'fp8' ? 3 : 6) * hidden * (used * inner + sharedInner),
    flops: 6 * hidden * (rows * inner + tokens * sharedInner),
  });
}

/** The same layer with NCCL's exchange of as many rows, whose counts the host knows for free: a lower bound. */
async function withNccl(bench: Bench, layer: MoeLayer, communicator: NcclCommunicator): Promise<Spread> {
  const { timing, tokens, plan, x, out } = bench;
  const { hidden, experts, topK } = bench.data.model;
  const of = workload({
    ...{ profile: 'custom', hidden, experts, topK },
    ...{ ranks: plan.ranks, dtype: plan.rows, combineDtype: 'bf16', router: 'uniform', seed: 1 },
  });
  const round = ncclRound(bench, communicator, of, routeSets(of, tokens, 1), 1);
  const [dispatch, combine] = round.steps('sparse', ['dispatch', 'combine']);
  const { batches, shared } = layerInside(layer);
  const batch = batches[0]!;
  const { stream } = timing;
  const steps = [
    () => void batch.parts.router.route(x, stream),
    dispatch!,
    () => batch.experts(stream),
    combine!,
    () => shared?.begin(x, out, stream),
  ];
  const spread = await time(bench, steps, round.grouping);
  round.free();
  return spread;
}

const heads: Readonly<Partial<Record<LayerPart | LayerWay, string>>> = {
  'dispatch + combine': 'd + c',
  'two micro-batches': 'two',
  'one-sided, in a row': 'one-sided',
  'NCCL, in a row': 'NCCL',
};

/** Parts, then the whole layer in its ways; then what the experts compute. */
export const layerColumns = (): readonly Column<LayerPoint>[] => [
  { head: 'tokens', cell: ({ tokens }) => String(tokens) },
  ...[...layerParts, ...layerWays].map((name) => ({
    head: heads[name] ?? name,
    cell: ({ parts, ways }: LayerPoint) => {
      const times: Readonly<Partial<Record<LayerPart | LayerWay, Spread>>> = { ...parts, ...ways };
      return times[name]?.median.toFixed(1) ?? '–';
    },
  })),
  { head: 'tokens/s', rate: true, cell: ({ tokensPerSecond }) => tokensPerSecond?.toExponential(2) ?? '–' },
  { head: 'exposed', cell: ({ exposed }) => percent(exposed) },
  ...boundsColumns(({ bounds }: LayerPoint) => bounds),
  ...flopsColumns((point: LayerPoint) => point),
];
