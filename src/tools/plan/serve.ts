/**
 * `heddle plan serve`: how many GPUs, and which EP, serve so many tokens a second, and what one token waits. A layer is
 * dispatch, the experts' GEMMs and combine in a row; what else a model does is a figure that the user gives.
 */
import { ArgumentError } from '../../base/errors.js';
import { limits, type MoeModel, type Placement, placesByExpert, rankOfPlace } from '../../moe/layer/index.js';
import { ninety } from './fit.js';
import { type GemmFit, gemmWork } from './gemms.js';
import {
  answer,
  type Candidate,
  candidates,
  isAbout,
  named,
  placeOn,
  type Question,
  ranked,
} from './plan.js';
import { busiestOf, chosen, hits, inOrder as ordered, placeMore, type RankPlacement } from './routing.js';

export const expertLayers: Readonly<Record<string, number>> = {
  deepseek_v3: 58,
  kimi_k2: 60,
  qwen3_235b: 94,
  gpt_oss_120b: 36,
  mixtral: 32,
};

export interface Demand extends Pick<Question, 'model' | 'known' | 'law'> {
  readonly layer: MoeModel;
  readonly tokensPerSecond: number;
  readonly gemm: GemmFit;
  readonly family?: string;
  /** µs a layer of all else: attention, router, shared expert. */
  readonly rest: number;
}

/** One way to serve: so many instances of EP ranks each, every rank with so many tokens at a time. */
export type Service = ReturnType<typeof service>[number];

/** The share of a GPU's memory that weights of experts and buffers may take: the rest is for attention and its cache. */
const forExperts = 0.7;

/** Tokens a rank. */
const batches = Array.from({ length: 11 }, (_, i) => 2 ** i);

/** Every EP of the machine that holds the model, with each of `batches`. */
export function services(demand: Demand) {
  const { known, layer, gemm, law } = demand;
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
  const places = sizes.map((ep) => {
    const place = placeOn(known, ep);
    return { place, all: candidates(known, place) };
  });
  // Few families carry rows both inside a node and between nodes: one that is asked for has the EPs that it can carry.
  const wanted = named(
    places.flatMap(({ all }) => all),
    demand.family,
  );
  return places.flatMap(({ place, all }) => {
    const carriers = all.filter((one) => wanted.includes(one));
    if (carriers.length === 0) return [];
    const more = placeMore(layer, place, law);
    const inOrder = loadsOf(demand, place);
    const placed = more === null ? inOrder : loadsOf(demand, place, more);
    return batches.flatMap((tokens) => service(demand, place, carriers, tokens, [inOrder, placed]));
  });
}

type Loads = ReturnType<typeof loadsOf>;

/** Where routes go. `held`: [rank]: how likely a token has a route to each of the places there. */
function loadsOf({ layer, law }: Demand, place: RankPlacement, placement?: Placement) {
  const each = chosen(layer, law);
  const of = placement ?? ordered(layer.experts, place.ranks);
  const places = placesByExpert(of);
  const held = Array.from({ length: place.ranks }, (): number[] => []);
  for (const [n, expert] of of.places.entries())
    if (expert >= 0) held[rankOfPlace(of, n)]!.push(each[expert]! / places[expert]!.length);
  return { hits: hits(layer, place, law, placement), held };
}

function service(
  demand: Demand,
  place: RankPlacement,
  carriers: readonly Candidate[],
  tokens: number,
  [inOrder, placed]: readonly [Loads, Loads],
) {
  const { model, layer, known, law, gemm, rest } = demand;
  const layers = expertLayers[model]!;
  const question: Question = {
    ...{ model, layer, known, place, law, replicas: 1, tokens: [tokens] },
    dtype: gemm.format,
    combineDtype: 'bf16',
  };
  const [best] = ranked(carriers.map((one) => answer(question, inOrder.hits, one, tokens)));
  const fits = ({ held }: Loads) => {
    const most = Math.max(...held.map(({ length }) => length));
    const weights = layers * gemmWork(layer, gemm.bytes, most, 0).weightBytes;
    return weights + (best?.memory ?? 0) <= forExperts * known.machine.memory * 1e9;
  };
  if (best === undefined || !fits(inOrder)) return [];
  const all = place.ranks * tokens;
  /** Of the rank whose experts take longest. */
  const multiplying = ({ held }: Loads) =>
    held
      .map((routes) => {
        const rows = routes.reduce((sum, one) => sum + all * one, 0);
        const read = routes.reduce((sum, one) => sum + 1 - (1 - one) ** all, 0);
        return gemm.of(gemmWork(layer, gemm.bytes, read, rows));
      })
      .reduce((a, b) => (b.time > a.time ? b : a));
  const now = multiplying(inOrder);
  const layerTime = best.time + now.time + rest;
  const carrier = carriers.find((one) => isAbout(one)(best))!;
  const then = fits(placed)
    ? answer(question, placed.hits, carrier, tokens).time + multiplying(placed).time + rest
    : layerTime;
  const perSecond = (all * 1e6) / (layers * layerTime);
  const wide = Math.exp(ninety * Math.max(0.03, gemm.scatter));
  const ms = layers / 1000;
  const parts = { network: best.time, memory: now.memory, compute: now.compute };
  const bound = (Object.keys(parts) as (keyof typeof parts)[]).reduce((a, b) =>
    parts[b] > parts[a] ? b : a,
  );
  return [
    {
      // Parts and layer are µs of one layer.
      ...{ ep: place.ranks, tokens, carrier: best.candidate, layer: layerTime, parts, bound },
      gpus: place.ranks * Math.ceil(demand.tokensPerSecond / perSecond),
      // ms between two tokens of one request: all layers, once. Nine of ten are expected from `low` to `high`.
      latency: ms * layerTime,
      low: ms * (best.low + now.time / wide + rest),
      high: ms * (best.high + now.time * wide + rest),
      // The routes of the busiest rank over the mean: with experts in order, and with one more place on every rank.
      busiest: [busiestOf(inOrder.hits), busiestOf(placed.hits)],
      // The share of a layer that those places would save.
      placed: Math.max(0, 1 - then / layerTime),
      beyond: best.beyond,
    },
  ];
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
