/**
 * `heddle plan serve`: how many GPUs, and which EP, serve so many tokens a second, and what one token waits. A layer is
 * dispatch, the experts' GEMMs and combine in a row; what else a model does is a figure that the user gives.
 */
import { ArgumentError } from '../../base/errors.js';
import { limits, type MoeModel } from '../../moe/layer/index.js';
import { ninety } from './fit.js';
import { type GemmFit, gemmWork } from './gemms.js';
import type { KnownMachine } from './machines.js';
import { answer, type Candidate, candidates, named, placeOn, type Question, ranked } from './plan.js';
import { hits, placed, type RankPlacement, type RoutingLaw } from './routing.js';

/** Layers with experts. */
export const expertLayers: Readonly<Record<string, number>> = {
  deepseek_v3: 58,
  kimi_k2: 60,
  qwen3_235b: 94,
  gpt_oss_120b: 36,
  mixtral: 32,
};

export interface Demand {
  readonly model: string;
  readonly layer: MoeModel;
  readonly known: KnownMachine;
  readonly tokensPerSecond: number;
  readonly law: RoutingLaw;
  readonly gemm: GemmFit;
  /** Only this one carries rows. */
  readonly family?: string;
  /** µs a layer of all else: attention, router, shared expert. */
  readonly rest: number;
}

type Limit = 'compute' | 'memory' | 'network';

/** One way to serve: so many instances of EP ranks each, every rank with so many tokens at a time. */
export interface Service {
  readonly ep: number;
  readonly tokens: number;
  readonly carrier: string;
  readonly gpus: number;
  /** ms between two tokens of one request: all layers, once. Nine of ten are expected from `low` to `high`. */
  readonly latency: number;
  readonly low: number;
  readonly high: number;
  /** µs of one layer. */
  readonly parts: { readonly network: number; readonly memory: number; readonly compute: number };
  readonly layer: number;
  readonly bound: Limit;
  /** The share of a layer that one more copy of an expert on every rank would save, at the best placement. */
  readonly replicas: number;
  readonly beyond: readonly string[];
}

/** The share of a GPU's memory that weights of experts and buffers may take: the rest is for attention and its cache. */
const forExperts = 0.7;

/** Tokens a rank. */
const batches = Array.from({ length: 11 }, (_, i) => 2 ** i);

/** Every EP of the machine that holds the model, with each of `batches`. */
export function services(demand: Demand): Service[] {
  const { known, layer, gemm } = demand;
  const { machine } = known;
  if (machine.gpu !== gemm.gpu)
    throw new ArgumentError(
      'machine',
      machine.name,
      `one with the GPU that the GEMMs were measured on, ${gemm.gpu}`,
    );
  const most = machine.nominal.nic > 0 ? limits.worldRanks : machine.perNode;
  const sizes: number[] = [];
  for (let ep = 2; ep <= Math.min(most, layer.experts); ep *= 2) if (layer.experts % ep === 0) sizes.push(ep);
  return sizes.flatMap((ep) => {
    const place = placeOn(known, ep);
    const carriers = named(candidates(known, place), demand.family);
    return batches.flatMap((tokens) => service(demand, place, carriers, tokens));
  });
}

function service(
  demand: Demand,
  place: RankPlacement,
  carriers: readonly Candidate[],
  tokens: number,
): Service[] {
  const { model, layer, known, law, gemm, rest } = demand;
  const layers = expertLayers[model]!;
  const question: Question = {
    ...{ model, layer, known, place, law, replicas: 1, tokens: [tokens] },
    dtype: gemm.format,
    combineDtype: 'bf16',
  };
  const found = hits(layer, place, law);
  const [best] = ranked(carriers.map((one) => answer(question, found, one, tokens)));
  const mine = layer.experts / place.ranks;
  const weights = layers * gemmWork(layer, gemm.bytes, mine, 0).weightBytes;
  const room = forExperts * known.machine.memory * 1e9;
  if (best === undefined || weights + (best.memory ?? 0) > room) return [];
  const loads = expertLoads(layer, law, place.ranks * tokens);
  const [now, spread] = [0, 1].map((extra) => {
    const busiest = busiestRank(loads, place.ranks, extra);
    return gemm.of(gemmWork(layer, gemm.bytes, busiest.read, busiest.rows));
  }) as [ReturnType<GemmFit['of']>, ReturnType<GemmFit['of']>];
  const layerTime = best.time + now.time + rest;
  const perSecond = (place.ranks * tokens * 1e6) / (layers * layerTime);
  const wide = Math.exp(ninety * Math.max(0.03, gemm.scatter));
  const ms = layers / 1000;
  const parts = { network: best.time, memory: now.memory, compute: now.compute };
  const bound = (Object.keys(parts) as Limit[]).reduce((a, b) => (parts[b] > parts[a] ? b : a));
  return [
    {
      ...{ ep: place.ranks, tokens, carrier: best.candidate, layer: layerTime, parts, bound },
      gpus: place.ranks * Math.ceil(demand.tokensPerSecond / perSecond),
      latency: ms * layerTime,
      low: ms * (best.low + now.time / wide + rest),
      high: ms * (best.high + now.time * wide + rest),
      replicas: Math.max(0, 1 - (best.time + spread.time + rest) / layerTime),
      beyond: best.beyond,
    },
  ];
}

interface Load {
  /** Rows that an expert gets in a round, and the chance that it gets any. */
  readonly rows: number;
  readonly read: number;
}

function expertLoads(layer: MoeModel, law: RoutingLaw, tokens: number): Load[] {
  const each = hits(layer, { ranks: layer.experts, perNode: layer.experts }, law);
  return Array.from(each.routes, (routes, i) => ({
    rows: tokens * routes,
    read: 1 - (1 - each.ranks[i]!) ** tokens,
  }));
}

/**
 * The rank with the most rows. Without copies experts lie as their ids follow; with `extra` a rank, the most loaded have them, and
 * the heaviest are placed first where there is least.
 */
function busiestRank(loads: readonly Load[], ranks: number, extra: number): Load {
  const each = placed(loads.length, ranks) / ranks + extra;
  const held = Array.from({ length: ranks }, () => ({ rows: 0, read: 0, count: 0 }));
  const give = (rank: (typeof held)[number], { rows, read }: Load): void => {
    rank.rows += rows;
    rank.read += read;
    rank.count++;
  };
  if (extra === 0) for (const [i, load] of loads.entries()) give(held[Math.floor(i / each)]!, load);
  else {
    const copies = loads.map(() => 1);
    for (let n = 0; n < extra * ranks; n++) {
      const worst = loads.reduce(
        (at, { rows }, i) => (rows / copies[i]! > loads[at]!.rows / copies[at]! ? i : at),
        0,
      );
      copies[worst]!++;
    }
    const all = loads.flatMap(({ rows, read }, i) =>
      Array.from({ length: copies[i]! }, () => ({ rows: rows / copies[i]!, read })),
    );
    for (const load of all.sort((a, b) => b.rows - a.rows))
      give(
        held.filter(({ count }) => count < each).reduce((a, b) => (b.rows < a.rows ? b : a)),
        load,
      );
  }
  return held.reduce((a, b) => (b.rows > a.rows ? b : a));
}

/** Those that no other beats in both GPUs and latency, the fewest GPUs first. */
export function pareto(all: readonly Service[]): Service[] {
  const sorted = [...all].sort((a, b) => a.gpus - b.gpus || a.latency - b.latency);
  let least = Number.POSITIVE_INFINITY;
  return sorted.filter(({ latency }) => {
    if (latency >= least) return false;
    least = latency;
    return true;
  });
}
