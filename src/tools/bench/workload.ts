/** The subject of a measurement: a model's MoE layer, its formats, its router, and what one round of it moves. */
import { ArgumentError, requireInteger } from '../../base/errors.js';
import {
  combineRowBytes,
  dispatchRowBytes,
  type FormatName,
  firstOf,
  ownerOf,
  type Placement,
  type Profile,
  payloadsFor,
  profile,
  type RowDtype,
  rebalance,
  type Shape,
  traffic,
} from '../../moe/layer/index.js';
import { makeAllRoutes, type RouterLaw, type Routes } from '../../verify/testing/index.js';

export interface WorkloadOptions {
  /** A profile's name, or `custom` with the numbers. */
  readonly profile: string;
  readonly hidden?: number;
  readonly experts?: number;
  readonly topK?: number;
  readonly ranks: number;
  /** So many consecutive ranks bring the same tokens. Default 1. */
  readonly replicas?: number;
  readonly dtype: FormatName;
  readonly combineDtype: RowDtype;
  readonly router: 'uniform' | 'perfect' | 'skewed';
  /** The exponent of `skewed`: the n-th most popular expert is chosen in proportion to n^-skew. */
  readonly skew?: number;
  readonly seed: number;
}

export type Workload = Readonly<ReturnType<typeof workload>>;

export function workload(options: WorkloadOptions) {
  const { ranks, replicas = 1, dtype, combineDtype } = options;
  const numbers = options.profile === 'custom' ? custom(options) : profile(options.profile);
  const { hidden = numbers.hidden, experts = numbers.experts, topK = numbers.topK } = options;
  requireInteger('replicas', replicas, 1, ranks);
  return {
    name: options.profile,
    hidden,
    experts,
    topK,
    ranks,
    replicas,
    dtype,
    combineDtype,
    router: routerOf(options),
    seed: options.seed,
    // The bytes that dispatch carries for each token.
    payloads: payloadsFor(dtype, hidden),
  };
}

function custom({ hidden, experts, topK }: WorkloadOptions): Profile {
  for (const [name, value] of Object.entries({ hidden, experts, topK })) {
    if (value === undefined) throw new ArgumentError(name, value, "given with the profile 'custom'");
  }
  return { hidden: hidden!, experts: experts!, topK: topK! };
}

function routerOf({ router, skew, seed }: WorkloadOptions): RouterLaw {
  if (router === 'uniform') return { kind: 'uniform' };
  if (router === 'perfect') return { kind: 'balanced' };
  return { kind: 'zipf', exponent: skew!, favourites: seed };
}

export function routerInWords(router: RouterLaw): string {
  switch (router.kind) {
    case 'balanced':
      return 'perfect router (every expert the same load)';
    case 'zipf':
      return `skewed routes (n-th most popular expert ∝ n^-${router.exponent})`;
    default:
      return 'uniform random routes';
  }
}

export function shapeOf(of: Workload, maxTokens: number): Shape {
  const { ranks, replicas, experts, topK, payloads, combineDtype, hidden } = of;
  return { ranks, replicas, experts, topK, maxTokens, payloads, output: { dtype: combineDtype, hidden } };
}

export const rowBytesOf = (of: Workload): Readonly<Record<'dispatch' | 'combine', number>> => {
  const shape = shapeOf(of, 1);
  return { dispatch: dispatchRowBytes(shape), combine: combineRowBytes(shape) };
};

/** Bytes of one phase of one round; means over input sets and, except `busiest`, over ranks. */
export interface PhaseBytes {
  /** The bytes that cross NVLink per GPU: each row once per (token, other rank that owns one of its experts). */
  readonly physical: number;
  /** As if every route had a row of its own, wherever its expert is: what the layer asks for. */
  readonly logical: number;
  /** The bytes that cross NVLink at the GPU that sends, or receives, most: it bounds the round. */
  readonly busiest: number;
}

export type RoundBytes = ReturnType<typeof roundBytes>;

/** The routes of all ranks for every input set. The same wherever it is called. */
export function routeSets(of: Workload, tokens: number, sets: number): readonly (readonly Routes[])[] {
  return Array.from({ length: sets }, (_, set) =>
    makeAllRoutes(of, tokens, of.seed + set, { router: of.router }),
  );
}

/** Tokens a rank whose routes are counted for a placement. */
const countedTokens = 4096;

/** A placement by the counts of routes that came before those of all sets: others, of the same favourites. */
export function placementByCounts(of: Workload, places: number, nodes: number): Placement {
  const counts = new Array<number>(of.experts).fill(0);
  for (const { topkIds } of makeAllRoutes(of, countedTokens, of.seed - 1, { router: of.router }))
    for (const id of topkIds) counts[id]!++;
  return rebalance(counts, { ranks: of.ranks, places, nodes });
}

/** The routes that the busiest rank gets in a round, over the mean of all ranks; the mean over input sets. */
export function busiestLoad(
  shape: Pick<Shape, 'ranks' | 'experts' | 'replicas'>,
  sets: readonly (readonly Routes[])[],
): number {
  const ofSets = sets.map((routes) => {
    const loads = new Array<number>(shape.ranks).fill(0);
    for (const [rank, { topkIds }] of routes.entries())
      if (firstOf(shape, rank) === rank) for (const id of topkIds) loads[ownerOf(shape, id)]!++;
    return (Math.max(...loads) * shape.ranks) / loads.reduce((sum, load) => sum + load);
  });
  return ofSets.reduce((sum, load) => sum + load) / sets.length;
}

export function roundBytes(of: Workload, tokens: number, sets: readonly (readonly Routes[])[], nodes = 1) {
  const shape = shapeOf(of, tokens);
  const rounds = sets.map((routes) => traffic(shape, routes, nodes));
  const mean = (value: (round: (typeof rounds)[number]) => number): number =>
    rounds.reduce((sum, round) => sum + value(round), 0) / rounds.length;
  const perRank = 1 / of.ranks;
  const row = rowBytesOf(of);
  // The rows that a rank hands to the others of its group: all ranks the same, but for a token or two.
  const sums = { dispatch: 0, combine: mean((round) => round.sums) * perRank };
  const phase = (name: 'dispatch' | 'combine'): PhaseBytes => ({
    physical: mean(({ remote }) => remote[name]) * perRank,
    logical: mean(({ routes }) => routes) * row[name] * perRank,
    busiest: (mean(({ leaving, arriving }) => Math.max(...leaving, ...arriving)) + sums[name]) * row[name],
  });
  return {
    dispatch: phase('dispatch'),
    combine: phase('combine'),
    // (token, rank) pairs per rank: rows sent in each phase, those that stay on their GPU included.
    rows: mean(({ rows }) => rows) * perRank,
    remoteRows: mean(({ remote }) => remote.rows) * perRank,
    // The rows that a rank sends to other nodes: a row once for each (token, other node), in each phase.
    between: {
      rows: mean(({ between }) => between.rows) * perRank,
      dispatch: mean(({ between }) => between.dispatch) * perRank,
      combine: mean(({ between }) => between.combine) * perRank,
    },
  };
}

/** `-b 1 -e 4096 -f 2`: from `begin` to `end` by the factor; the end itself only where a step lands on it. */
export function sweep(begin: number, end: number, factor: number): number[] {
  requireInteger('end', end, begin, 2 ** 20);
  const tokens: number[] = [];
  for (let n = begin; n <= end; n = Math.max(n + 1, Math.round(n * factor))) tokens.push(n);
  return tokens;
}
