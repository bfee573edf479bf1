/**
 * Rounds beside the reference on whatever devices a world has: small ones of every kind, and those of a large model. Simulated GPUs run
 * a few of them in Vitest, beside the many of cases.ts; real ones run all, in test/on-gpus.
 */
import { familyNamed, type TransportName } from '../../src/moe/families/index.js';
import { bitsOf, type Placement } from '../../src/moe/layer/index.js';
import type { World } from '../../src/net/world/index.js';
import { requireSame } from '../../src/verify/check/subjects/by-rank.js';
import { carriedBy, carriedRounds, type Rounds, roundsOf } from '../../src/verify/check/subjects/rounds.js';
import { compareRounds, runRounds } from '../../src/verify/testing/index.js';

/** One comparison with the reference. */
export interface RoundTripCase {
  readonly name: string;
  readonly ranks: number;
  /** One rank's part of it: throws where anything differs from the reference. */
  run(world: World): Promise<void>;
}

/** The families of one node. */
export const familyNames = ['one-sided', 'portable'] as const;
export type FamilyName = (typeof familyNames)[number] | 'hybrid';

/** Who carries rounds, and how long a kernel waits. */
interface CarriedBy {
  readonly family?: FamilyName;
  /** Equal nodes that the ranks form. */
  readonly nodes?: number;
  readonly transport?: TransportName;
  readonly waitMs?: number;
}

/** `blocks`, `threads`, `parts` and `own` are a tuning; without them the family has its own. */
type Trip = Partial<Rounds> & {
  /** Values that arithmetic treats in ways of their own stand among those of `x`, and some weights make products denormal. */
  readonly extremes?: boolean;
};

const extremes = [0, -0, 448, 449, -464, 1.5e38, -1.5e38, Number.NaN, Number.POSITIVE_INFINITY, -Infinity];

function roundTrip(
  name: string,
  { extremes: wild = false, ...trip }: Trip & { readonly ranks: number },
  { family = 'one-sided', transport, nodes = 1, waitMs }: CarriedBy,
): RoundTripCase[] {
  const of = roundsOf({ inspect: 'last', nodes, ...trip });
  const tuned = trip.own !== undefined || trip.blocks !== undefined;
  const by = tuned
    ? carriedBy(familyNamed(family), transport)(of)
    : { family, counts: of.counts, ...(transport && { transport }) };
  if (by === null) return [];
  const make = () =>
    carriedRounds(of, by, (sources) => {
      if (!wild) return;
      for (const { payloads, topkWeights = new Float32Array() } of sources) {
        // Each block of 128 elements, which share a scale, has one of them.
        const x = bitsOf('f32', payloads.x!);
        for (let block = 0; 128 * block < x.length; block++)
          x[128 * block + (block % 128)] = extremes[block % extremes.length]!;
        for (let i = 0; i < topkWeights.length; i += 3) topkWeights[i]! *= 1e-39;
      }
    });
  // Ranks of one process share it. It goes with the case.
  let shared: ReturnType<typeof make> | undefined;
  let users = 0;
  const run = async (world: World): Promise<void> => {
    users++;
    try {
      shared ??= make();
      const { shape, options, made } = shared;
      const { rounds, placedShape, means, expected } = made();
      const { experts: _, ...others } = options;
      const own = await runRounds(world, shape, rounds, { ...others, ...(waitMs && { waitMs }) });
      const results: (typeof own)[] = [];
      results[world.rank] = own;
      requireSame(compareRounds(placedShape, means, results, expected));
    } finally {
      if (--users === 0) shared = undefined;
    }
  };
  return [{ name, ranks: of.ranks, run }];
}

/** Tunings: `one` small block, rows in `three` parts, a block for `each` piece. */
const spread = {
  one: { blocks: 1, threads: 32, parts: 1, own: { 'combine.ahead': 0 } },
  three: { blocks: 4, threads: 96, parts: 3, own: { 'combine.ahead': 2 } },
  each: { blocks: 64, threads: 256, parts: 2, own: { 'combine.ahead': 1 } },
};
const pulled = ({ own, ...tuning }: (typeof spread)['one']) => ({
  ...tuning,
  own: { ...own, 'combine.way': 'pull' },
});

/** The cases of a world of so many ranks; graphs are replayed for so many rounds. */
export function roundTripCases(
  ranks: number,
  { replays, ...carrier }: CarriedBy & { readonly replays: number },
): RoundTripCase[] {
  const full = Array.from({ length: ranks }, () => 5);
  const none = full.map(() => 0);
  const some = full.map((most, rank) => (rank * 3 + 2) % (most + 1));
  const onlyLast = none.map((_, rank) => (rank === ranks - 1 ? 5 : 0));
  const uneven = [some, none, onlyLast, full, some];
  /** Pairs, or where they do not divide the ranks, all of them. */
  const replicas = ranks % 2 === 0 ? 2 : ranks;
  const groups = { replicas, maxTokens: 2 * replicas };
  const replayed = (atOnce = 1): Trip => ({ graph: true, times: replays - (replays % atOnce) });
  const holes = { routes: { holes: 0.4 } };
  const repeated = { routes: { router: { kind: 'repeated' } } } as const;
  const weighs = { weighting: 'plan' } as const;
  const e4m3 = { combineFormat: 'e4m3', hidden: 144 } as const;
  const mxfp8 = { ...e4m3, combineFormat: 'mxfp8' } as const;
  const wild = { dtype: 'f32', hidden: 14 * 128, maxTokens: 2, extremes: true } as const;
  const counts = true;
  const experts = 3 * ranks + 1;
  /** Of five places a rank, one is empty, and some experts have two. */
  const placement = (turn: number): Placement => ({
    ...{ experts, ranks },
    places: Array.from({ length: 5 * ranks }, (_, place) => ((place + turn) % (experts + 1)) - 1),
  });

  const trips: Record<string, Trip> = {
    bf16: {},
    f16: { dtype: 'f16', hidden: 40 },
    f32: { dtype: 'f32', hidden: 12 },
    'payloads of many lengths': { extra: [1, 2, 3, 4, 8, 33, 100] },
    'rows of one element': { hidden: 1 },
    'rows of 13 f16': { dtype: 'f16', hidden: 13 },
    'rows of 77 f32': { dtype: 'f32', hidden: 77, counts },
    'rows of 1000 bf16': { hidden: 1000 },
    'uneven and empty ranks, no weights, experts moved': {
      ...{ tokens: uneven, counts, inspect: true, weights: false },
      placements: uneven.map((_, round) => placement(round >> 1)),
    },
    'nobody brings a token': { tokens: [none, none], counts },
    'holes (-1)': { ...holes, counts },
    'ids out of range': { stray: true, counts },
    'repeated experts': { ...repeated, counts },
    'all remote': { routes: { router: { kind: 'remote' } } },
    'one rank has it all': { routes: { router: { kind: 'one-rank', target: ranks >> 1 } }, counts },
    'fewer experts than ranks': {
      ...{ experts: Math.max(1, ranks - 1), topK: Math.min(2, Math.max(1, ranks - 1)), counts },
    },
    'top-1': { topK: 1 },
    'top-32': { topK: 32, experts: 40, maxTokens: 3, counts },
    'combine weighs': { ...weighs, ...repeated },
    'combine weighs, rows of 13 f16, holes': { ...weighs, ...holes, dtype: 'f16', hidden: 13, extra: [7] },
    'combine weighs, a graph, replayed': { ...weighs, ...replayed() },
    'bf16 as e4m3': { ...e4m3, counts },
    'f16 as e4m3, rows in three parts, holes': {
      ...e4m3,
      ...holes,
      dtype: 'f16',
      hidden: 272,
      ...spread.three,
    },
    'f32 as e4m3, uneven and empty ranks': { ...e4m3, dtype: 'f32', hidden: 16, tokens: uneven },
    'f32 as e4m3, values of every kind': { ...e4m3, ...wild },
    'combine weighs, f32 as e4m3, values of every kind': { ...e4m3, ...weighs, ...wild },
    'combine weighs, bf16 as e4m3': { ...e4m3, ...weighs, ...repeated },
    'combine weighs, f32 as e4m3, one small block, holes': {
      ...{ ...e4m3, ...weighs, ...holes, dtype: 'f32', ...spread.one },
    },
    'bf16 as e4m3, a graph, replayed': { ...e4m3, hidden: 48, ...replayed() },
    'bf16 as mxfp8': { ...mxfp8, counts },
    'f32 as mxfp8, values of every kind': { ...mxfp8, ...wild },
    'combine weighs, f16 as mxfp8, rows in three parts, holes': {
      ...{ ...mxfp8, ...weighs, ...holes, dtype: 'f16', hidden: 1040, ...spread.three },
    },
    'groups, bf16 as mxfp8': { ...groups, ...mxfp8, hidden: 1040 },
    'groups, counts': { ...groups, counts, inspect: true },
    'groups, two tokens each, rows in three parts': {
      ...{ replicas, maxTokens: 3 * replicas, ...spread.three },
      tokens: [full, none, full].map((of) => of.map((tokens) => Math.min(tokens, 2))),
    },
    'groups, bf16 as e4m3': { ...groups, ...e4m3, hidden: 1040 },
    'groups, a graph, replayed': { ...groups, ...replayed() },
    'no weights, counts, nine rounds': {
      ...{ weights: false, counts, tokens: [...uneven, full, none, onlyLast, full] },
    },
    'pull, one small block': { ...pulled(spread.one), counts },
    'pull, rows in three parts': { ...pulled(spread.three), counts },
    'pull, a block a piece': pulled(spread.each),
    'pull, groups': { ...groups, ...pulled(spread.three), counts },
    'pull, f32 weighed by combine': { ...weighs, ...pulled(spread.three), dtype: 'f32', hidden: 40 },
    'pull, a graph, replayed': { ...replayed(), ...pulled(spread.one) },
    'push, one small block': { ...spread.one, counts },
    'push, rows in three parts': { ...spread.three, counts },
    'push, a block a piece': spread.each,
    'push, far ahead': { ...spread.one, own: { 'combine.ahead': 7 } },
    'push, a vector in flight': { hidden: 1000, ...spread.one, own: { inFlight: 1 } },
    'push, eight vectors in flight': { hidden: 4000, ...spread.each, own: { inFlight: 8 } },
    'a graph, replayed': { ...replayed(), counts },
    'a graph of two rounds in flight, replayed': { ...replayed(2), split: true, rounds: 2 },
  };
  const plain = { ranks, experts, topK: 4, maxTokens: 5, hidden: 24 };
  return Object.entries(trips)
    .filter(([name]) => name !== 'all remote' || ranks > 1)
    .filter(([name]) => !name.startsWith('pull') || (carrier.family ?? 'one-sided') === 'one-sided')
    .flatMap(([name, trip]) => roundTrip(name, { ...plain, ...trip }, carrier));
}

/** Every feature once: those that each network must carry. */
const features =
  /^(bf16|payloads of many lengths|uneven and empty ranks.*|nobody brings a token|ids out of range|combine weighs|bf16 as e4m3|bf16 as mxfp8|groups, counts|push, rows in three parts|a graph(, replayed| of two rounds.*))$/;

export const featureCases = (ranks: number, carrier: CarriedBy): RoundTripCase[] =>
  roundTripCases(ranks, { ...carrier, replays: 3 }).filter(({ name }) => features.test(name));

/** The cases of worlds of several nodes. */
export const casesAcross = (ranks: number, nodes: number): RoundTripCase[] =>
  featureCases(ranks, { family: 'hybrid', nodes });

/** A large model's layer, with whatever tuning suits it; too much for simulated GPUs. */
export function largeCases(ranks: number, carrier: CarriedBy = {}): RoundTripCase[] {
  const layer = { ranks, experts: 256, topK: 8, hidden: 7168 };
  const sizes = [1, 2, 8, 32, 128, 384].map((maxTokens): [string, Trip] => [
    `7168 bf16, top-8 of 256, ${maxTokens} tokens`,
    { maxTokens, times: maxTokens > 100 ? 2 : 5 },
  ]);
  const trips: Record<string, Trip> = {
    ...Object.fromEntries(sizes),
    '7168 bf16 beside fp8 with scales, 16 tokens, counts': {
      maxTokens: 16,
      counts: true,
      extra: [7168, 224],
    },
    '7168 bf16 as e4m3, weighed by combine, 32 tokens': {
      ...{ maxTokens: 32, weighting: 'plan', combineFormat: 'e4m3' },
    },
    '7168 bf16, 200 of 256 tokens on 8 multiprocessors, in a graph': {
      ...{ maxTokens: 256, sms: 8, graph: true },
      tokens: Array.from({ length: 3 }, () => Array<number>(ranks).fill(200)),
    },
    '7168 bf16, 24 of 32 tokens, in a graph': {
      ...{ maxTokens: 32, counts: true, graph: true },
      tokens: Array.from({ length: 20 }, () => Array<number>(ranks).fill(24)),
    },
  };
  return Object.entries(trips).flatMap(([name, trip]) => roundTrip(name, { ...layer, ...trip }, carrier));
}
