/**
 * Whole rounds as data, and one function that runs such a case beside the reference, bit by bit. `heddle check` runs most cases, under
 * the race detector and beside the same reference (src/verify/check/subjects). These have types, lengths, tunings and combinations
 * that schedules do not ask for.
 */
import { expect } from 'vitest';
import { formatFinding, type MachineOptions, SimMachine } from '../../src/gpu/sim/index.js';
import { configurationsOf, type FamilyOptions, type Rounds } from '../../src/verify/check/subjects/rounds.js';

/** Rounds, the family that carries them (default: the one that suits them), and whether the race detector looks on. */
export type Case = Partial<Rounds> & Omit<FamilyOptions, 'counts'> & { readonly checked?: boolean };

/** Expects the reference's bits, and no race where the case is checked. */
export async function expectReference(
  { family, transport, tuning, checked = false, ...rounds }: Case,
  on: Omit<MachineOptions, 'ranks' | 'mode'> = {},
): Promise<void> {
  const [configuration] = configurationsOf('a case', { rounds }, ({ counts }) => ({
    ...{ counts, ...(family && { family }), ...(transport && { transport }), ...(tuning && { tuning }) },
  }));
  const { ranks, run } = configuration!;
  const machine = SimMachine.create({ ranks, mode: checked ? 'checked' : 'fast', hostLines: false, ...on });
  await run(machine);
  expect(machine.findings.map(formatFinding)).toEqual([]);
}

/** What ranks bring, a digit each, round after round. */
const bring = (rounds: string) => rounds.split(' ').map((ranks) => [...ranks].map(Number));

type Cases = Readonly<Record<string, Case>>;

/** Those, each beside what they share. */
const each = (shared: Case, cases: Cases): Cases =>
  Object.fromEntries(Object.entries(cases).map(([name, own]) => [name, { ...shared, ...own }]));

const launch = { blocks: 2, threads: 64, parts: 2, inFlight: 4, teams: 1 } as const;

/** A tuning of the one-sided family. */
export const spread = (way: 'push' | 'pull', change: Partial<Record<keyof typeof launch, number>> = {}) => {
  const both = { ...launch, ...change };
  return { dispatch: both, combine: { ...both, way, ahead: 1 } };
};
/** A tuning of the portable family, and of the hybrid one. */
const messages = (change: Partial<Record<'blocks' | 'threads' | 'parts', number>> = {}) => {
  const both = { blocks: 2, threads: 32, parts: 1, ...change };
  return { dispatch: both, combine: both };
};
const rails = {
  dispatch: { blocks: 2, threads: 32, chunk: 2 },
  combine: { blocks: 2, threads: 32, parts: 1 },
};

const portable = { family: 'portable' } as const;
const twoNodes = { family: 'hybrid', nodes: 2 } as const;
const narrow = { combineFormat: 'e4m3', hidden: 144 } as const;

const uneven = bring('301 000 132');
const layer: Case = { ranks: 3, experts: 12, topK: 4, maxTokens: 3, hidden: 24 };
/** Two rounds in flight, as a graph or on a stream of their own each. */
const inFlight = { split: true, rounds: 2 } as const;

const routed: Cases = {
  'routes to nobody': { routes: { holes: 0.5 } },
  'repeated experts': { routes: { router: { kind: 'repeated' } } },
  'all routes to one rank': { routes: { router: { kind: 'one-rank', target: 1 } } },
  'all routes remote': { routes: { router: { kind: 'remote' } } },
};

/** Experts take the rows of a plan. */
const byPlan: Cases = {
  bf16: {},
  f16: { dtype: 'f16' },
  f32: { dtype: 'f32' },
  'one rank, which holds every expert': { ranks: 1 },
  'top 1': { topK: 1 },
  'top 32 of one rank': { experts: 40, topK: 32, ranks: 1, maxTokens: 2 },
  'fewer experts than ranks': { ranks: 4, experts: 3, topK: 2 },
  'rows of several passes': { hidden: 600, ranks: 2 },
  'sums added': { adds: true },
  ...routed,
};

/** Combine takes the rows of a plan. */
const planned = each(
  { ...layer, weighting: 'plan' },
  {
    ...byPlan,
    'top 13 of 26': { experts: 26, topK: 13, ranks: 2 },
    'odd rows of f32': { hidden: 5, dtype: 'f32' },
    'split phases': { ranks: 4, split: true, checked: true },
    'two rounds in flight': { ranks: 4, ...inFlight, checked: true },
    'push: a graph, replayed': { graph: true, counts: true, tuning: spread('push'), checked: true },
  },
);

/** Every route's row comes home. */
const returned = each(
  { ...layer, weighting: 'source' },
  { ...byPlan, 'two rounds in flight': { hidden: 40, tokens: uneven, ...inFlight, checked: true } },
);

/** Rows come back as e4m3. */
const rounded = each(
  { ...layer, ...narrow },
  {
    bf16: {},
    f16: { dtype: 'f16' },
    f32: { dtype: 'f32' },
    'weighed by combine, f16': { weighting: 'plan', dtype: 'f16' },
    'weighed by combine, f32': { weighting: 'plan', dtype: 'f32' },
    'one rank': { ranks: 1 },
    'rows of one vector': { hidden: 16 },
    'rows of whole blocks': { hidden: 256 },
    'rows of several stretches and a short block': { hidden: 1136, ranks: 2 },
    'top 1': { topK: 1 },
    'fewer experts than ranks': { ranks: 4, experts: 3, topK: 2 },
    'sums of 18 rows': { ranks: 18, experts: 36, topK: 20, maxTokens: 1, hidden: 16 },
    ...each({ hidden: 32 }, routed),
    'in parts, uneven tokens': { hidden: 1040, tokens: uneven, tuning: spread('push'), checked: true },
    'a graph, replayed': {
      ...{ weighting: 'plan', graph: true, counts: true, tuning: spread('push'), checked: true },
    },
  },
);

/** Combine adds to what `out` holds. */
const added = each(
  { ranks: 3, experts: 7, topK: 4, maxTokens: 5, hidden: 144, adds: true, checked: true },
  {
    'pulled, several vectors at a time': {
      ...{ hidden: 1040, ranks: 2, tuning: spread('pull', { threads: 32, parts: 1 }) },
    },
    'pulled by two halves': {
      ...{ hidden: 1024, ranks: 2, tuning: spread('pull', { blocks: 1, parts: 1, teams: 2 }) },
    },
    e4m3: { combineFormat: 'e4m3' },
    'f32, split': { dtype: 'f32', split: true },
    'a graph': { graph: true },
    'portable, e4m3, split': { ...portable, split: true, combineFormat: 'e4m3' },
    ...each(
      { ...twoNodes, ranks: 4, hidden: 1040, maxTokens: 3 },
      {
        'hybrid on two nodes': {},
        'hybrid on two nodes, e4m3': { combineFormat: 'e4m3' },
      },
    ),
  },
);

/** Full, uneven between groups, none of one group, an odd number. */
const ofPairs = bring('6666 5500 0033 1122');
const looked = { tokens: ofPairs, counts: true, inspect: true } as const;
const teams = { blocks: 3, teams: 2, inFlight: 2 };
const threes = { ranks: 6, replicas: 3, maxTokens: 9, inspect: true } as const;

/** Ranks bring the same tokens. */
const groups = each(
  { ranks: 4, replicas: 2, experts: 8, topK: 3, maxTokens: 6, hidden: 24, extra: [6] },
  {
    'one-sided': looked,
    'one-sided, e4m3, in parts': {
      ...{ combineFormat: 'e4m3', hidden: 1040, tokens: ofPairs, tuning: spread('push', teams) },
    },
    'one-sided, pulled': { ...looked, hidden: 5, tuning: spread('pull', teams) },
    'one-sided, groups of 3': { ...threes, counts: true },
    portable: { ...looked, ...portable },
    'portable, odd rows, three chunks': {
      ...{ ...looked, ...portable, hidden: 5, maxTokens: 66, tokens: [[66, 66, 40, 40]] },
    },
    'portable, e4m3, f32': {
      ...{ ...portable, combineFormat: 'e4m3', hidden: 1040, dtype: 'f32', tokens: ofPairs },
    },
    'portable, groups of 3': { ...portable, ...threes },
  },
);

/** Dispatch rounds a payload; all of it is looked at. */
const roundedThere = each(
  {
    ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 3, extra: [6], inspect: true },
    ...{
      rounded: { format: 'e4m3', length: 256 },
      tokens: bring('33 22 00'),
    },
  },
  {
    'one-sided, split': { split: true },
    'one-sided, groups of 2': {
      ranks: 4,
      replicas: 2,
      maxTokens: 4,
      tokens: bring('4444 2200'),
    },
    'one-sided, in parts': { rounded: { format: 'e4m3', length: 640 }, tuning: spread('push', { parts: 3 }) },
    'portable, mxfp8, in parts': {
      ...{ ...portable, rounded: { format: 'mxfp8', length: 640 } },
      tuning: messages({ threads: 64, parts: 3 }),
    },
    'portable, groups of 2': {
      ...{
        ...portable,
        ranks: 4,
        replicas: 2,
        maxTokens: 4,
        tokens: bring('4444 2200'),
      },
    },
    'hybrid, mxfp8, two nodes, groups of 2': {
      ...{ ...twoNodes, ranks: 4, replicas: 2, maxTokens: 6, rounded: { format: 'mxfp8', length: 384 } },
      ...{
        tokens: bring('6644 0011'),
        checked: true,
      },
    },
    'hybrid, two nodes, split': { ...twoNodes, split: true },
  },
);

const alone = spread('push', { threads: 32, parts: 1 });
const pulled = spread('pull', { threads: 32, parts: 1 });

/** Ranks are left out of the last two rounds. */
const left = each(
  {
    ...{ ranks: 4, experts: 9, topK: 3, maxTokens: 4, hidden: 24, extra: [6], times: 4 },
    ...{ leaveOut: leaving(2) },
  },
  {
    'what suits the layer': { inspect: true },
    'hybrid, on one node': { family: 'hybrid' },
    ...each(
      { tuning: alone },
      {
        'pull, counts, looked at': { tuning: pulled, counts: true, inspect: true, leaveOut: leaving(0) },
        e4m3: { combineFormat: 'e4m3', hidden: 16, leaveOut: leaving(1) },
        'combine weighs': { weighting: 'plan' },
        'all but one': { tuning: pulled, leaveOut: leaving(0, 1, 3) },
        'a graph of two rounds that goes on': { ...inFlight, graph: true },
      },
    ),
    ...each(
      { ...portable, tuning: messages() },
      {
        'portable, counts, looked at': { counts: true, inspect: true, leaveOut: leaving(0) },
        'portable, e4m3, two at once': { combineFormat: 'e4m3', hidden: 16, leaveOut: leaving(0, 3) },
        'portable, combine weighs, all but one': { weighting: 'plan', leaveOut: leaving(0, 1, 3) },
        'portable, a graph of two rounds that goes on': { ...inFlight, graph: true },
      },
    ),
    ...each(
      { ...twoNodes, tuning: rails },
      {
        'hybrid, one rail': { split: true, leaveOut: leaving(1, 3) },
        'hybrid, a node': { inspect: true, leaveOut: leaving(0, 1) },
        'hybrid, all but one': { leaveOut: leaving(0, 1, 3) },
        'hybrid, e4m3, weighed by combine': {
          ...{ combineFormat: 'e4m3', hidden: 16, weighting: 'plan', leaveOut: leaving(1) },
        },
        'hybrid, neighbours of a node of four': {
          ...{ ranks: 8, maxTokens: 2, extra: [], leaveOut: leaving(0, 3, 6) },
        },
        'hybrid, nodes of a rank': { nodes: 4, leaveOut: leaving(1) },
        'hybrid, a graph of two rounds that goes on': { ...inFlight, graph: true },
      },
    ),
  },
);

function leaving(...ranks: number[]) {
  return { before: 2, ranks };
}

const one = (ranks: number, rounds: number) => new Array(rounds).fill(new Array<number>(ranks).fill(1));
const many = { ranks: 34, experts: 34, topK: 4, maxTokens: 1, tokens: one(34, 2), checked: true } as const;

/** More ranks than a warp has lanes, which take each other in turns, and more than pull by default. */
const ofMany: Cases = {
  // The second round fills the slots again.
  push: { ...many, tuning: spread('push', { blocks: 1, parts: 1, inFlight: 1 }) },
  messages: { ...many, ...portable, tuning: messages({ blocks: 1, threads: 64 }) },
  'split phases of 17': { ...many, ranks: 17, experts: 17, topK: 2, tokens: one(17, 2), split: true },
};

/** Two rounds in flight, each on a stream of its own. */
const onTwoStreams = each(
  {
    ...{ ...inFlight, ranks: 3, experts: 7, topK: 3, maxTokens: 4, hidden: 24 },
    tokens: bring('413 042 444 100 234'),
  },
  { 'one-sided': {}, portable },
);

export const cases: Readonly<Record<string, Cases>> = {
  'combine takes rows of a plan': planned,
  'the row of every route comes home': returned,
  'rows come back as e4m3': rounded,
  'combine adds': added,
  'groups of ranks': groups,
  'dispatch rounds rows': roundedThere,
  'ranks are left out': left,
  'many ranks': ofMany,
  'rounds on two streams': onTwoStreams,
};
