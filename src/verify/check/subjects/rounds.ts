/**
 * Whole rounds of a family, several back to back with no host between them, in shapes small enough for thousands of
 * schedules.
 */

import { evenNodes, topologyOf, type WireSide } from '../../../gpu/index.js';
import {
  type Family,
  familyNamed,
  type PlanTarget,
  refusalOf,
  type TransportName,
  type Tuning,
  usualChip,
} from '../../../moe/families/index.js';
import type { ExpertParallelOptions } from '../../../moe/index.js';
import {
  type Placement,
  placed,
  type ScaledFormatName,
  type Shape,
  type Source,
} from '../../../moe/layer/index.js';
import { World } from '../../../net/world/index.js';
import {
  compareRounds,
  expectedRound,
  leftOut,
  makeSources,
  placedSources,
  type RoundsOptions,
  type RoundsShape,
  type RoutesOptions,
  roundedSources,
  runRounds,
  shapeOfRounds,
} from '../../testing/index.js';
import type { CheckConfiguration } from '../subject.js';
import { once, requireSame } from './by-rank.js';

type FamilyKnobs = Readonly<Record<string, number | string>>;

/** How one rank's rounds run. */
const runs = {
  weights: true,
  counts: false,
  inspect: false as boolean | 'last',
  graph: false,
  split: false,
  rounds: 1,
  /** They take turns, each with a placement of its own. */
  layers: 1,
  waits: false,
  sms: undefined as number | undefined,
};

const usualShape: Required<RoundsShape> = {
  ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 2, replicas: 1, hidden: 8, dtype: 'bf16' },
  ...{ weighting: 'experts', combineFormat: 'rows', adds: false, extra: [] },
};

const usual = {
  ...runs,
  ...usualShape,
  /** Equal nodes that the ranks form. */
  nodes: 1,
  times: 3,
  uneven: false,
  routes: {} as RoutesOptions,
  placements: [] as readonly Placement[],
  /** Routes to ids that no expert has. */
  stray: false,
  /** A further payload, of bf16, that dispatch rounds: so many elements a row. */
  rounded: undefined as { readonly format: ScaledFormatName; readonly length: number } | undefined,
  blocks: 2,
  threads: 32,
  parts: 1,
  /** Further knobs of the family, by their names; where both phases have one of that name, as phase.name. */
  own: {} as FamilyKnobs,
  /** The experts' kernel may start before dispatch has ended. */
  programmatic: true,
  residentBlocks: 132,
  /** Before which rounds the world leaves ranks out, and takes them in again. */
  leaveOut: undefined as RoundsOptions['leaveOut'],
  /** Where what NICs reach lies. */
  wires: 'host' as WireSide,
};

/**
 * One configuration; what it leaves out is as in `usual`. `tokens`: [round][rank]. If left out, maxTokens of each, in so many rounds;
 * or uneven numbers, down to none.
 */
export type Rounds = Readonly<typeof usual> & { readonly tokens: readonly (readonly number[])[] };

/** Placements of four experts on three ranks. Before, expert 3 lives nowhere and two others have two places; after, all live, and one has two. */
const moved: Readonly<Record<'before' | 'after', Placement>> = {
  before: { experts: 4, ranks: 3, places: [0, 2, 1, -1, 0, 1] },
  after: { experts: 4, ranks: 3, places: [3, 2, 1, 1, -1, 0] },
};

/** Some of these ranks have no expert. */
const idle = { ranks: 4, experts: 3, maxTokens: 1, blocks: 1 };
/** A token's rows come from more ranks than are added at once. */
export const nine = { ranks: 9, experts: 18, topK: 12, maxTokens: 1, blocks: 1, times: 2 };
/** Rows in parts, which two warps take. */
const twoWarps = { hidden: 560, parts: 2, blocks: 3, threads: 64 };
export const oneToken = { maxTokens: 1, experts: 2, topK: 1, blocks: 1, times: 1 };
/** Ranks that hold the same tokens. */
export const pairs = { ranks: 4, replicas: 2 };

/** Rounds that every family runs, with every transport. */
export const wholeRounds: Readonly<Record<string, Partial<Rounds>>> = {
  '2 ranks': {},
  '3 ranks': { ranks: 3 },
  '1 rank': { ranks: 1 },
  'one token': oneToken,
  'uneven tokens, experts that do not divide': { ranks: 3, experts: 7, maxTokens: 3, uneven: true },
  'empty ranks and empty rounds': {
    ranks: 3,
    tokens: [
      [2, 0, 1],
      [0, 0, 0],
      [0, 2, 0],
      [1, 1, 2],
    ],
  },
  'routes to nobody': { ranks: 3, topK: 3, routes: { holes: 0.5 } },
  'ids out of range': { stray: true, topK: 3 },
  'repeated experts': { ranks: 3, experts: 6, topK: 4, routes: { router: { kind: 'repeated' } } },
  'all on one rank': { ranks: 3, routes: { router: { kind: 'one-rank', target: 1 } } },
  'all remote': { ranks: 3, experts: 6, routes: { router: { kind: 'remote' } } },
  'fewer experts than ranks': idle,
  // The first id that no expert has would belong to the first rank that has none.
  'fewer experts than ranks, ids out of range': { ...idle, topK: 3, stray: true },
  'sums added to what is there': { adds: true, ranks: 3, routes: { holes: 0.3 } },
  'payloads of odd bytes': { extra: [1, 6, 12, 24, 33] },
  'counts, no weights': { counts: true, weights: false, topK: 3, experts: 5, inspect: true },
  // More routes and experts than threads, so each loop that counts runs twice.
  'counts of more routes and experts than threads': {
    ...{ ranks: 3, experts: 200, topK: 32, maxTokens: 1, blocks: 1, threads: 64, counts: true },
    inspect: true,
  },
  // More than 32 vectors a part, so that both warps read and write; the last part is shorter.
  'rows in parts, two warps': { hidden: 568, parts: 2, blocks: 3, threads: 64, counts: true },
  'a graph, replayed': { graph: true, counts: true },
  'arrivals looked at': { inspect: true, programmatic: false },
  'one resident block': { residentBlocks: 1, maxTokens: 3 },
  // Some experts have two places and some none, and the last round has another placement.
  'experts placed, and moved': {
    ...{ ranks: 3, experts: 4, topK: 3, counts: true, stray: true },
    placements: [moved.before, moved.before, moved.after],
  },
  // Each layer's first and last rounds go by one placement, what lies between by the other.
  'two layers, experts placed apart, and moved': {
    ...{ ranks: 3, experts: 4, topK: 3, layers: 2, counts: true, waits: true },
    placements: [moved.before, moved.after, moved.after, moved.before, moved.before],
    times: 5,
    uneven: true,
  },
  'experts placed, a graph': {
    ...{ experts: 2, graph: true },
    placements: [
      { experts: 2, ranks: 2, places: [0, -1, 1, 0] },
      { experts: 2, ranks: 2, places: [0, -1, 1, 0] },
      { experts: 2, ranks: 2, places: [1, 0, -1, 0] },
    ],
  },
  'experts placed, groups of 2': {
    ...{ ...pairs, experts: 3 },
    placements: new Array(3).fill({ experts: 3, ranks: 4, places: [0, 1, 2, 0] }),
  },
  'groups of 2': { ...pairs, counts: true, uneven: true },
  'all in one group, one resident block': {
    ...{ replicas: 2, residentBlocks: 1, maxTokens: 6, parts: 2, hidden: 24 },
  },
};

/** For every family that splits phases: other work lies between the halves. */
export const splitRounds = each(
  { split: true },
  {
    split: {},
    'split, counts, two warps': { ...twoWarps, counts: true },
    'split, uneven tokens': { ranks: 3, experts: 7, maxTokens: 3, times: 4, uneven: true },
    // Five rounds, so that each of two in flight is used again, and again.
    'split, two rounds in flight': { rounds: 2, ranks: 3, times: 5, uneven: true },
    'split, two rounds in flight, experts moved': {
      ...{ rounds: 2, ranks: 3, experts: 4 },
      placements: [moved.before, moved.before, moved.after, moved.after, moved.before],
      times: 5,
      uneven: true,
    },
    // Three layers, so that each fills the memory of either round.
    'split, two rounds in flight, three layers, experts placed apart': {
      ...{ rounds: 2, ranks: 3, experts: 4, layers: 3 },
      placements: [moved.before, moved.after, moved.before, moved.before, moved.after, moved.after],
      times: 6,
      uneven: true,
    },
    // Of both rounds in flight; it runs twice.
    'split, a graph, replayed': {
      ...{ rounds: 2, graph: true, counts: true },
      tokens: [
        [2, 1],
        [1, 2],
        [2, 1],
        [1, 2],
      ],
    },
  },
);

/** For every family that leaves ranks out, in each of its ways. */
export const maskedRounds: Readonly<Record<string, Partial<Rounds>>> = {
  'a rank left out': { ranks: 3, topK: 3, experts: 6, leaveOut: { before: 1, ranks: [1] } },
  'two left out, counts': {
    ...{ ranks: 4, experts: 8, topK: 3, counts: true, leaveOut: { before: 2, ranks: [0, 3] } },
  },
  'all others left out, a graph': { graph: true, leaveOut: { before: 1, ranks: [0] } },
  // It hears of the placement that the others go by when it is back.
  'a rank left out and back, experts moved meanwhile': {
    ...{ ranks: 3, placements: [moved.after, moved.before] },
    leaveOut: { before: 1, until: 2, ranks: [1] },
  },
  'a rank left out and back, two layers moved meanwhile': {
    ...{ ranks: 3, layers: 2, times: 5 },
    placements: [moved.before, moved.after, moved.after, moved.before, moved.after],
    leaveOut: { before: 1, until: 3, ranks: [1] },
  },
  'a rank left out and back, a graph': {
    ...{ ranks: 3, graph: true, leaveOut: { before: 1, until: 2, ranks: [0] } },
    tokens: Array(7).fill([2, 2, 2]),
  },
  // The others' windows, and what their graphs hold, stay where they are.
  'a rank left out, and a new process in its place, a graph': {
    ...{ ranks: 3, graph: true, leaveOut: { before: 1, until: 2, ranks: [1], anew: true } },
    tokens: Array(4).fill([2, 2, 2]),
  },
};
export const maskedSplitRounds: typeof maskedRounds = Object.fromEntries(
  Object.entries(maskedRounds).map(([name, of]) => [`split, ${name}`, { ...of, split: true }]),
);

/** For every family that reaches several nodes. */
export const roundsOnNodes: Readonly<Record<string, Partial<Rounds>>> = {
  ...onNodes(2, [
    '2 ranks',
    'one token',
    'fewer experts than ranks, ids out of range',
    'payloads of odd bytes',
    'counts, no weights',
    'rows in parts, two warps',
    'a graph, replayed',
    'arrivals looked at',
    'experts placed, a graph',
    'one resident block',
  ]),
  ...onNodes(3, [
    'uneven tokens, experts that do not divide',
    'empty ranks and empty rounds',
    'routes to nobody',
    'repeated experts',
    'all on one rank',
    'all remote',
    'experts placed, and moved',
    'two layers, experts placed apart, and moved',
  ]),
};

/** Common configurations, on so many nodes. */
function onNodes(nodes: number, names: readonly string[]): Record<string, Partial<Rounds>> {
  return Object.fromEntries(names.map((name) => [name, { ...wholeRounds[name], nodes }]));
}

/** For NVSHMEM, where it differs from windows: messages of several warps, set signals and added ones, sources that are written again. */
export const roundsOverNvshmem: Readonly<Record<string, Partial<Rounds>>> = {
  '2 ranks': {},
  'split, two warps, payloads of odd bytes': { ...twoWarps, split: true, extra: [1, 6] },
  e4m3: { combineFormat: 'e4m3', hidden: 16, ranks: 3, counts: true },
  // Sums are handed on by all blocks of a receive.
  // A share of a sum is more than one unit: what other lanes wrote.
  groups: { ...pairs, hidden: 264 },
  'a graph, replayed': { graph: true, counts: true },
};

/** The fields of each of `all`, beside what is its own. */
export function each(
  shared: Partial<Rounds>,
  all: Readonly<Record<string, Partial<Rounds>>>,
): Readonly<Record<string, Partial<Rounds>>> {
  return Object.fromEntries(Object.entries(all).map(([name, own]) => [name, { ...shared, ...own }]));
}

/** Rows that dispatch rounds, and that every rank has experts for. */
export const roundedRows = (
  { format = 'e4m3', length = 256 }: Partial<NonNullable<Rounds['rounded']>>,
  of: Partial<Rounds> = {},
): Partial<Rounds> => {
  const { ranks = usual.ranks } = of;
  return { ...of, rounded: { format, length }, topK: ranks, experts: ranks, inspect: 'last' };
};

/** The shape of rounds in the words of the reference. */
export function shapeFor(of: Rounds): Shape {
  const shape = shapeOfRounds(of);
  if (of.rounded === undefined) return shape;
  const { format, length } = of.rounded;
  const rows = [
    { name: 'rows', rowBytes: length, rounded: format },
    { name: 'rowsScales', rowBytes: length / 32 },
  ];
  return { ...shape, payloads: [...shape.payloads, ...rows] };
}

export type FamilyOptions = Pick<ExpertParallelOptions, 'family' | 'transport' | 'tuning' | 'counts'>;

export type FamilyOptionsOf = (of: Rounds) => FamilyOptions | null;

/** A family carries rounds: spread as they say, with these knobs and theirs, otherwise by its rules of thumb. It may refuse to, also without counts. */
export const carriedBy =
  (family: Family, transport: TransportName = 'windows', own: FamilyKnobs = {}): FamilyOptionsOf =>
  (of) => {
    const target: PlanTarget = {
      kind: 'sim',
      multiprocessors: of.residentBlocks,
      capability: usualChip.capability,
      split: of.split,
      sms: of.sms ?? null,
      transport,
      rank: 0,
      topology: topologyOf(evenNodes(of.ranks, of.nodes), 0),
    };
    for (const counts of of.counts ? [true, false] : [false]) {
      const layer = { ...placed(shapeFor(of), of.placements[0]), weights: of.weights, counts };
      if (refusalOf(family, layer, target) !== null) continue;
      const spread = spreadAs(of, own, family.defaults(layer, target));
      const tuning = family.adapt(spread, layer, target);
      if (refusalOf(family, layer, target, tuning) !== null) continue;
      return { family: family.name, transport, tuning, counts };
    }
    return null;
  };

const spreadAs = ({ blocks, threads, parts, own }: Rounds, shared: FamilyKnobs, tuning: Tuning): Tuning =>
  Object.fromEntries(
    Object.entries(tuning).map(([phase, knobs]) => {
      const said: FamilyKnobs = { blocks, threads, parts, ...shared, ...own };
      const known = Object.keys(knobs).map((knob) => [
        knob,
        said[`${phase}.${knob}`] ?? said[knob] ?? knobs[knob]!,
      ]);
      return [phase, Object.fromEntries(known)];
    }),
  );

/** A configuration for each of `all` that somebody carries, named like it. */
export function configurationsOf(
  way: string,
  all: Readonly<Record<string, Partial<Rounds>>>,
  carried: FamilyOptionsOf,
): CheckConfiguration[] {
  return Object.entries(all).flatMap(([name, differences]) => {
    const of = roundsOf(differences);
    const family = carried(of);
    return family === null ? [] : [configuration(`${way}, ${name}`, of, family)];
  });
}

export function roundsOf(differences: Partial<Rounds>): Rounds {
  const of = { ...usual, ...differences };
  const { maxTokens, ranks, replicas, times, uneven } = of;
  /** So many fewer than there may be; of three rounds and more the second is empty. */
  const less = (n: number, rank: number): number =>
    n === 1 && times > 2 ? maxTokens : (Math.floor(rank / replicas) + 2 * n) % (maxTokens + 1);
  const tokens = Array.from({ length: times }, (_, n) =>
    Array.from({ length: ranks }, (_, rank) => maxTokens - (uneven ? less(n, rank) : 0)),
  );
  return { tokens, ...of };
}

function configuration(name: string, of: Rounds, family: FamilyOptions): CheckConfiguration {
  const { ranks, nodes, residentBlocks, wires } = of;
  const { shape, options, made } = carriedRounds(of, family);
  return {
    ...{ name, ranks, residentBlocks },
    async run(sim) {
      const { rounds, placedShape, means, expected } = made();
      const results = await World.local({ ranks, nodes, device: 'sim', sim, fabric: { wires } }, (world) =>
        runRounds(world, shape, rounds, options),
      );
      requireSame(compareRounds(placedShape, means, results, expected));
    },
  };
}

/** Rounds and the family that carries them, as `runRounds` takes them. `change` is called with the inputs of each round. */
export function carriedRounds(of: Rounds, family: FamilyOptions, change?: (sources: Source[]) => void) {
  const { nodes, leaveOut } = of;
  const shape = shapeFor(of);
  const how = Object.keys(runs).map((name) => [name, of[name as keyof typeof runs]]);
  const options: RoundsOptions = {
    ...Object.fromEntries(how),
    ...(leaveOut && { leaveOut, onLoss: 'mask' }),
    ...(of.placements.length > 0 && { placements: of.placements }),
    ...family,
    experts: { blocks: 2, threads: 32, programmatic: of.programmatic },
  };
  const byRails = family.family !== undefined && familyNamed(family.family).travel.rows === 'rails';
  return { shape, options, made: once(() => makeRounds(shape, of, byRails ? nodes : 1, change)) };
}

/**
 * The rounds, what they mean to the reference, and what it makes of them. Inputs differ from round to round, so that what is left
 * over from the last one shows.
 */
function makeRounds(shape: Shape, of: Rounds, nodesSummed: number, change?: (sources: Source[]) => void) {
  const { tokens, routes, stray, weights, placements, nodes, leaveOut } = of;
  const rounds = tokens.map((round, n) => {
    const sources = makeSources(shape, round, n + 1, routes);
    const strays = [shape.experts, -7, 2 ** 31 - 1];
    if (stray) for (const { topkIds } of sources) topkIds.subarray(n).set(strays.slice(n, topkIds.length));
    change?.(sources);
    return sources;
  });
  const placedShape = placed(shape, placements[0]);
  const placedRounds = rounds.map((sources, n) =>
    placedSources(shape, roundedSources(shape, sources), placements[n] ?? placements.at(-1), nodes),
  );
  const means = leaveOut ? leftOut(placedShape, placedRounds, leaveOut) : placedRounds;
  const expected = means.map((sources) => expectedRound(placedShape, sources, weights, nodesSummed));
  return { rounds, placedShape, means, expected };
}
