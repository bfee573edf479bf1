/**
 * A whole MoE layer: what its parts take, one by one, and all of it in the ways in which dispatch and combine can lie in
 * it: in a row, with the shared expert beside them, as two micro-batches, and with NCCL in their place.
 */

import { HeddleError } from '../../base/errors.js';
import type { Column } from '../../base/table.js';
import { mlpParts } from '../../moe/experts/index.js';
import {
  emptyTensor,
  layerInside,
  MoeLayer,
  type MoeLayerOptions,
  type OwnedTensor,
  readBits,
} from '../../moe/index.js';
import { type MoeModel, scaleBlock } from '../../moe/layer/index.js';
import { type Bounds, boundsColumns, boundsOf, measureRates, type Rates } from './bounds.js';
import { expertFlops, type Flops, flopsColumns } from './gemm.js';
import { type Look, pointByPoint, type Results, type Rig } from './harness.js';
import { inSmall, LayerData, modelWith } from './layer-data.js';
import { joinNccl, ncclRound } from './nccl.js';
import type { NcclCommunicator } from './nccl-library.js';
import type { Spread, Unit } from './statistics.js';
import { percent } from './table.js';
import type { Grouping, Steps } from './timing.js';
import { routeSets, workload } from './workload.js';

interface LayerBenchPlan {
  readonly profile: string;
  readonly ranks: number;
  /** Experts on each rank, instead of the model's. */
  readonly expertsHere: number | null;
  readonly tokens: readonly number[];
  readonly family?: string;
  /** How dispatch carries rows. */
  readonly rows: 'bf16' | 'fp8';
  /** The type of the experts' weights. With fp8 they are e4m3 with scales, and rows travel as e4m3 too. */
  readonly weights: 'bf16' | 'fp8';
  readonly nccl: boolean;
  /** Also look at one forward of each number of tokens, launch by launch. */
  readonly trace: boolean;
  readonly device: 'cuda' | 'sim';
  readonly iterations: number;
}

const layerParts = [
  'router',
  'rows to fp8',
  'dispatch + combine',
  'plan',
  'reduce',
  'experts',
  'shared',
  'add',
] as const;
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
export interface LayerPoint extends Flops {
  readonly tokens: number;
  readonly family: string;
  readonly why: string;
  /** Each back to back; `experts` without the sums, which are `reduce`. Those that the model lacks are left out. */
  readonly parts: Readonly<Partial<Record<LayerPart, Spread>>>;
  readonly ways: Readonly<Partial<Record<LayerWay, Spread>>>;
  /** Of all ranks, the fastest way of Heddle's. */
  readonly tokensPerSecond: number;
  /** Router, experts and shared expert as a part of the layer in a row; the rest moves and shuffles rows. */
  readonly computed: number;
  /** Of the fastest way, the part that is not computing. */
  readonly exposed: number;
  /** Of rank 0's experts and its shared expert: their weights are read, their rows multiplied. */
  readonly bounds: Bounds;
  /** Rows of rank 0's experts; what these compute of them is `usefulFlops`, 6 · hidden · inner a row. */
  readonly rows: number;
}

export interface LayerReport extends Results<'layer', LayerPoint> {
  readonly model: MoeModel & { readonly name: string };
  readonly ranks: number;
}

/** @throws UnavailableError without enough GPUs, HeddleError where two ways give different bits. */
export async function benchLayer(
  plan: LayerBenchPlan,
  on: (point: LayerPoint) => void = () => {},
): Promise<LayerReport> {
  const { ranks, device } = plan;
  const model = modelFor(plan);
  const results = await pointByPoint('layer', plan, on, async (rig, tell, look) => {
    const data = LayerData.create(rig, model, 1, plan.weights);
    const rates = await measureRates(rig.timing);
    const nccl = device === 'cuda' && plan.nccl ? await joinNccl(rig.timing, true) : null;
    for (const tokens of plan.tokens) {
      const bench = new LayerBench(rig, data, plan, { tokens, nccl, rates });
      tell(await bench.measure());
      if (plan.trace) await bench.look(look);
      bench.free();
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

class LayerBench {
  readonly #io: { readonly x: OwnedTensor; readonly out: OwnedTensor };
  readonly #options: MoeLayerOptions;
  #first: Buffer | null = null;
  readonly #rig: Rig;
  readonly #data: LayerData;
  readonly #plan: LayerBenchPlan;
  readonly #tokens: number;
  readonly #nccl: NcclCommunicator | null;
  readonly #rates: Rates;

  constructor(
    rig: Rig,
    data: LayerData,
    plan: LayerBenchPlan,
    { tokens, nccl, rates }: { tokens: number; nccl: NcclCommunicator | null; rates: Rates },
  ) {
    this.#rig = rig;
    this.#data = data;
    this.#plan = plan;
    this.#tokens = tokens;
    this.#nccl = nccl;
    this.#rates = rates;
    const { timing, noise } = rig;
    const { device } = timing.world;
    const { model, weights } = data;
    const rows = () => emptyTensor(device, 'bf16', [tokens, model.hidden]);
    this.#io = { x: rows(), out: rows() };
    noise.fill(timing.stream, this.#io.x.data, this.#io.x.bytes);
    const { family, rows: format } = plan;
    this.#options = {
      model,
      maxTokens: tokens,
      rows: format,
      ...weights,
      ...(family !== undefined && { family }),
    };
  }

  free(): void {
    this.#io.x.free();
    this.#io.out.free();
  }

  async measure(): Promise<LayerPoint> {
    const tokens = this.#tokens;
    const plan = this.#plan;
    const { world } = this.#rig.timing;
    const ways: Partial<Record<LayerWay, Spread>> = {};
    const layer = await MoeLayer.create(world, { ...this.#options, overlap: false });
    ways['in a row'] = await this.#whole(layer);
    const { parts, rows, flops, bounds } = await this.#parts(layer);
    if (this.#nccl !== null) ways['NCCL, in a row'] = await this.#withNccl(layer, this.#nccl);
    const { family, why } = layer;
    await layer.dispose();
    const others: readonly (readonly [LayerWay, Partial<MoeLayerOptions>])[] = [
      ...(this.#data.model.sharedInner === undefined ? [] : [['beside', {}] as const]),
      ...(tokens < 2 ? [] : [['two micro-batches', { microBatches: 2 }] as const]),
      ...(family === 'one-sided'
        ? []
        : [['one-sided, in a row', { overlap: false, family: 'one-sided' }] as const]),
    ];
    for (const [way, how] of others) {
      const other = await MoeLayer.create(world, { ...this.#options, ...how });
      ways[way] = await this.#whole(other);
      await other.dispose();
    }
    const median = (part: LayerPart): number => parts[part]?.median ?? 0;
    const computing = median('router') + median('experts') + median('shared') + median('add');
    const row = ways['in a row'].median;
    const fastest = Math.min(row, ways.beside?.median ?? row, ways['two micro-batches']?.median ?? row);
    return {
      ...{ tokens, family, why, parts, ways, rows, bounds, ...flops },
      tokensPerSecond: (plan.ranks * tokens) / (fastest * 1e-6),
      ...{ computed: computing / row, exposed: 1 - computing / fastest },
    };
  }

  /** One forward, in two micro-batches. */
  async look(look: Look): Promise<void> {
    const { timing } = this.#rig;
    const { x, out } = this.#io;
    const microBatches = this.#tokens < 2 ? 1 : 2;
    const layer = await MoeLayer.create(timing.world, { ...this.#options, microBatches });
    await look(() => layer.forward(x, out, timing.stream));
    await layer.dispose();
  }

  #time(steps: Steps, grouping?: Grouping): Promise<Spread> {
    const { timing } = this.#rig;
    return timing.time(timing.world.device.kind === 'cuda' ? 10 : 1, steps, grouping);
  }

  /** The layer's time; its result must be that of the way before, bit by bit. */
  async #whole(layer: MoeLayer): Promise<Spread> {
    const io = this.#io;
    const { timing } = this.#rig;
    const time = await this.#time([() => layer.forward(io.x, io.out, timing.stream)]);
    await layer.synchronize(timing.stream);
    const bits = await readBits(io.out, timing.stream);
    const bytes = Buffer.from(bits.buffer, bits.byteOffset, bits.byteLength);
    this.#first ??= Buffer.from(bytes);
    if (this.#first.equals(bytes)) return time;
    throw new HeddleError(
      'HEDDLE_WRONG_RESULT',
      `two ways of a layer of ${this.#tokens} tokens a rank give different results; nothing that this run measured ` +
        'counts. Please report it with the output of `heddle doctor`',
    );
  }

  /** Each part of a layer by itself, on what a forward left behind. */
  async #parts(layer: MoeLayer) {
    const io = this.#io;
    const tokens = this.#tokens;
    const { noise } = this.#rig;
    const { stream, world } = this.#rig.timing;
    const { batches, shared } = layerInside(layer);
    const { router, fp8, ep, plan, experts } = batches[0]!.parts;
    const { received } = ep;
    const inputs = { ...router.route(io.x, stream), payloads: { x: io.x } };
    const round = await this.#time([
      () => {
        ep.dispatch(inputs, stream);
        ep.combine(io.out, stream);
      },
    ]);
    const { total, counts } = await plan.sizes(stream);
    const flops = expertFlops(this.#data.model, counts, mlpParts(experts).products.rowUnit);
    const made = emptyTensor(world.device, 'bf16', [plan.rows, this.#data.model.hidden]);
    noise.fill(stream, made.data, Math.min(made.bytes, total * this.#data.model.hidden * 2));
    const reduce = await this.#time([() => plan.reduce(received, made, stream)]);
    const all = await this.#time([() => experts.run(received, stream)]);
    made.free();
    const without = (a: Spread, b: Spread): Spread => ({ ...a, median: a.median - b.median });
    const rounding = fp8 && (await this.#time([() => fp8.round(io.x.data, tokens, stream)]));
    const parts: Partial<Record<LayerPart, Spread>> = {
      router: await this.#time([() => void router.route(io.x, stream)]),
      ...(rounding && { 'rows to fp8': rounding }),
      'dispatch + combine': rounding ? without(round, rounding) : round,
      plan: await this.#time([() => void plan.plan(received, stream)]),
      reduce,
      experts: without(all, reduce),
      ...(shared && {
        shared: await this.#time([() => shared.begin(io.x, stream)]),
        add: await this.#time([() => shared.add(io.out, stream)]),
      }),
    };
    return { parts, rows: total, flops, bounds: this.#bounds(counts) };
  }

  #bounds(counts: Uint32Array): Bounds {
    const { hidden, inner, sharedInner = 0 } = this.#data.model;
    const { weights } = this.#plan;
    const used = counts.filter((rows) => rows > 0).length;
    const rows = counts.reduce((sum, some) => sum + some, 0);
    return boundsOf(this.#rates, weights, {
      weightBytes: (weights === 'fp8' ? 3 : 6) * hidden * (used * inner + sharedInner),
      flops: 6 * hidden * (rows * inner + this.#tokens * sharedInner),
    });
  }

  /** The same layer with NCCL's exchange of as many rows, whose counts the host knows for free: a lower bound. */
  async #withNccl(layer: MoeLayer, communicator: NcclCommunicator): Promise<Spread> {
    const io = this.#io;
    const { timing } = this.#rig;
    const tokens = this.#tokens;
    const plan = this.#plan;
    const { model } = this.#data;
    const of = workload({
      ...{ profile: 'custom', hidden: model.hidden, experts: model.experts, topK: model.topK },
      ...{ ranks: plan.ranks, dtype: plan.rows, combineDtype: 'bf16', router: 'uniform', seed: 1 },
    });
    const round = ncclRound(this.#rig, communicator, of, routeSets(of, tokens, 1), 1);
    const [dispatch, combine] = round.steps('sparse', ['dispatch', 'combine']);
    const { batches, shared } = layerInside(layer);
    const batch = batches[0]!;
    const { stream } = timing;
    const time = await this.#time(
      [
        () => {
          batch.parts.router.route(io.x, stream);
          batch.parts.fp8?.round(io.x.data, tokens, stream);
        },
        dispatch!,
        () => batch.experts(stream),
        combine!,
        () => {
          shared?.begin(io.x, stream);
          shared?.add(io.out, stream);
        },
      ],
      round.grouping,
    );
    round.free();
    return time;
  }
}

const heads: Readonly<Partial<Record<LayerPart | LayerWay, string>>> = {
  'rows to fp8': 'to fp8',
  'dispatch + combine': 'd + c',
  'two micro-batches': 'two',
  'one-sided, in a row': 'one-sided',
  'NCCL, in a row': 'NCCL',
};

/** Parts, then the whole layer in its ways; then what the experts compute. */
export const layerColumns = (unit: Unit): readonly Column<LayerPoint>[] => {
  const columns: readonly Column<LayerPoint>[] = [
    { head: 'tokens', cell: ({ tokens }) => String(tokens) },
    ...[...layerParts, ...layerWays].map((name) => ({
      head: heads[name] ?? name,
      cell: ({ parts, ways }: LayerPoint) => {
        const times: Readonly<Partial<Record<LayerPart | LayerWay, Spread>>> = { ...parts, ...ways };
        return times[name]?.median.toFixed(1) ?? '–';
      },
    })),
    ...(unit === 'steps'
      ? []
      : [
          {
            head: 'tokens/s',
            cell: ({ tokensPerSecond }: LayerPoint) => tokensPerSecond.toExponential(2),
          },
        ]),
    { head: 'exposed', cell: ({ exposed }) => percent(exposed) },
    ...(unit === 'steps' ? [] : boundsColumns(({ bounds }: LayerPoint) => bounds)),
    ...flopsColumns((point: LayerPoint) => point),
  ];
  return columns.map((column) => ({ ...column, width: 10 }));
};
