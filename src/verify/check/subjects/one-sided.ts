/**
 * Whole rounds of the one-sided family, several back to back with no host between them, in shapes small enough for
 * many schedules. Each configuration is there for something that the others lack.
 */
import { oneSided as family } from '../../../moe/families/index.js';
import type { CheckSubject } from '../subject.js';
import { checksOf } from './general.js';
import {
  each,
  maskedRounds,
  maskedSplitRounds,
  nine,
  oneToken,
  pairs,
  type Rounds,
  roundedRows,
  splitRounds,
  wholeRounds,
} from './rounds.js';

const uneven = { ranks: 3, experts: 7, uneven: true };

const pushed: Readonly<Record<string, Partial<Rounds>>> = {
  'pushing far ahead': { maxTokens: 4, own: { ahead: 3 }, blocks: 1 },
  'waits counted': { waits: true, ranks: 3, threads: 64 },
  'waits counted, a rank left out': { ...maskedRounds['a rank left out'], waits: true },
  // A part of a row is more than one strip of vectors for a thread, and one token has no rows.
  'long rows, f16': {
    ...{ hidden: 2 * 208 * 8, parts: 2, dtype: 'f16', maxTokens: 2, blocks: 1, times: 2, uneven: true },
    routes: { holes: 0.7 },
  },
  'top 12 on 9 ranks, f32': { ...nine, hidden: 4, dtype: 'f32' },
  // Two warps round a part, of which one has no more than half.
  'rows rounded by dispatch, in parts': roundedRows({ length: 1280 }, { threads: 64, parts: 2 }),
  'rows rounded by dispatch to mxfp8': roundedRows({ format: 'mxfp8' }, { maxTokens: 1 }),
};

const pulled: Readonly<Record<string, Partial<Rounds>>> = {
  'top 1, odd rows of bf16': { topK: 1, hidden: 5 },
  'top 32, odd rows of f32': { experts: 33, topK: 32, hidden: 3, dtype: 'f32' },
  'waits counted, a graph': { waits: true, ranks: 3, graph: true },
  'odd rows of f16, in parts': { hidden: 7, dtype: 'f16', parts: 2, blocks: 4 },
  'two teams': { maxTokens: 3, blocks: 1, threads: 64, own: { teams: 2 }, hidden: 264 },
  'two halves': { maxTokens: 5, blocks: 1, threads: 64, own: { teams: 2 }, hidden: 256 },
  'top 12 on 10 ranks': { ...nine, ranks: 10, experts: 20 },
};

/** The host copies rows that stay at home, beside dispatch. */
const copied = each(
  { sms: 3, extra: [6] },
  {
    'few multiprocessors': { ranks: 3, uneven: true, inspect: 'last' },
    'few multiprocessors, a rank left out and back': maskedRounds['a rank left out and back, a graph']!,
  },
);

/** Combine takes the rows of a plan, and a launch before it makes those that travel. */
const weighed = each(
  { weighting: 'plan' },
  {
    'combine weighs': { topK: 3, experts: 5, counts: true },
    'combine weighs, odd rows': { hidden: 5 },
    'combine weighs, one token': { maxTokens: 1, experts: 2, blocks: 1, times: 1 },
    'combine weighs, uneven tokens, rows in parts': { ...uneven, parts: 2, hidden: 16 },
    'combine weighs, two warps': { maxTokens: 1, hidden: 560, parts: 2, threads: 64, times: 1 },
    'combine weighs, top 12': { topK: 12, experts: 24, maxTokens: 1, dtype: 'f32', hidden: 4 },
    'combine weighs, a graph': { graph: true },
  },
);

/** Combine takes the rows of a plan, and makes those that travel of them as it pushes. */
const planned = each(
  { weighting: 'plan' },
  {
    'of a plan': { topK: 3, experts: 5, counts: true },
    'of a plan, one token': { maxTokens: 1, experts: 2, blocks: 1, times: 1 },
    'of a plan, uneven tokens, in parts': { ...uneven, parts: 2, hidden: 16 },
    'of a plan, two teams': { maxTokens: 5, threads: 128, own: { teams: 2 }, hidden: 264 },
    'of a plan, pushing far ahead': { maxTokens: 4, own: { ahead: 3 }, blocks: 1 },
    'of a plan, groups of 2': { ...pairs, maxTokens: 4, times: 2 },
    'of a plan, routes to nobody': { routes: { holes: 0.5 } },
    'of a plan, a graph, a rank left out': { ranks: 3, graph: true, leaveOut: { before: 1, ranks: [1] } },
  },
);

/** A row for every route comes home, and is weighed there. */
const returned = each(
  { weighting: 'source' },
  {
    'by route': { topK: 3, experts: 5, counts: true },
    'by route, one token': { maxTokens: 1, experts: 2, blocks: 1, times: 1 },
    // More routes than are held at once, on either side.
    'by route, top 12': { topK: 12, experts: 24, maxTokens: 1, dtype: 'f32', hidden: 4 },
    'by route, uneven tokens, in parts': { ...uneven, parts: 2, hidden: 16 },
    'by route, two teams': { maxTokens: 5, threads: 128, own: { teams: 2 }, hidden: 264 },
    'by route, pushing far ahead': { maxTokens: 4, own: { ahead: 3 }, blocks: 1 },
    'by route, groups of 2': { ...pairs, maxTokens: 4, times: 2 },
    'by route, routes to nobody': { routes: { holes: 0.5 } },
    'by route, split, a graph': { split: true, graph: true },
    'by route, experts moved': {
      ...{ ranks: 3, experts: 4, topK: 3 },
      placements: wholeRounds['experts placed, and moved']!.placements!,
    },
    'by route, a graph, a rank left out': { ranks: 3, graph: true, leaveOut: { before: 1, ranks: [1] } },
  },
);

/** Rows are rounded on their way. */
const narrow = each(
  { combineFormat: 'e4m3', hidden: 16 },
  {
    e4m3: { counts: true },
    'e4m3, one token': oneToken,
    'e4m3, weighed by combine': { ranks: 3, topK: 3, weighting: 'plan', routes: { holes: 0.3 } },
    'e4m3, uneven tokens': uneven,
    'e4m3, scales of several blocks, f16': { hidden: 144, dtype: 'f16', maxTokens: 1, blocks: 1 },
    'e4m3, two warps': { hidden: 528, threads: 64, maxTokens: 1, blocks: 1 },
    'e4m3, rows in parts': { hidden: 1040, parts: 2, maxTokens: 1, dtype: 'f32', times: 2 },
    'e4m3, pushing far ahead': { maxTokens: 4, own: { ahead: 3 }, blocks: 1 },
    'e4m3, one resident block': { residentBlocks: 1, maxTokens: 3 },
    'e4m3, top 12 on 9 ranks': { ...nine, times: 1 },
    'e4m3, a graph': { graph: true },
    mxfp8: { combineFormat: 'mxfp8', hidden: 144, maxTokens: 1 },
    'e4m3, groups of 2': { ...pairs, hidden: 1040, parts: 2, times: 2, uneven: true },
  },
);

const apart = each(
  { split: true },
  {
    'split, one token': oneToken,
    'split, nothing comes home': { ranks: 3, topK: 2, routes: { router: { kind: 'one-rank', target: 1 } } },
    'split, waits counted': { waits: true, ranks: 3 },
    'split, waits counted beside routes': { waits: true, counts: true },
    'split, one resident block': { residentBlocks: 1, maxTokens: 3 },
    // Of two warps each, of which one has more of a row than the other.
    'split, two teams': { maxTokens: 5, threads: 128, own: { teams: 2 }, hidden: 264, counts: true },
    'split, groups of 2, a graph': { ...pairs, maxTokens: 4, graph: true, counts: true },
    'split, few multiprocessors, two rounds in flight': { sms: 3, rounds: 2, times: 5, uneven: true },
    'split, e4m3': { combineFormat: 'e4m3', hidden: 16, ranks: 3 },
    'split, e4m3, combine weighs': {
      ...{ combineFormat: 'e4m3', hidden: 16, weighting: 'plan', topK: 3, experts: 5 },
    },
    'split, counts, arrivals looked at': { counts: true, programmatic: false, inspect: true },
  },
);

const push = checksOf(family);
const pull = checksOf(family, 'windows', { 'combine.way': 'pull' });

const kernels = ['one_sided_dispatch', 'example_experts', 'other_work', 'one_sided_combine'];
const weighing = [kernels[0]!, 'experts_plan', kernels[1]!, 'one_sided_weigh', ...kernels.slice(2)];
const goesOn = true;
/** Where routes are counted, several blocks of a split dispatch wait. */
const halves = { goesOn, split: true, counts: true };

export const oneSided: readonly CheckSubject[] = [
  {
    name: 'one_sided_push',
    kernels,
    configurations: [
      ...push.rounds('push', { ...wholeRounds, ...maskedRounds, ...pushed, ...copied }),
      ...push.given('push, nothing between dispatch and combine'),
      ...push.given('push, nothing between dispatch and combine, f32', { dtype: 'f32' }),
      ...push.given('push, rows written again behind dispatch', { reusedBehind: 'dispatch' }),
      ...push.loss('push', 'dispatch', { goesOn }),
      ...push.loss('push', 'combine', { goesOn }),
      ...push.loss('push', 'combine', { goesOn, replicas: 2 }),
    ],
  },
  {
    name: 'one_sided_pull',
    kernels,
    configurations: [
      ...pull.rounds('pull', { ...wholeRounds, ...maskedRounds, ...pulled, ...copied }),
      ...pull.given('pull, nothing between dispatch and combine'),
    ],
  },
  {
    name: 'one_sided_weigh',
    kernels: weighing,
    configurations: pull.rounds('pull', weighed),
  },
  {
    name: 'one_sided_plan',
    kernels: ['one_sided_dispatch', 'experts_plan', 'example_experts', 'other_work', 'one_sided_combine'],
    configurations: [
      ...push.rounds('push', planned),
      ...push.loss('of a plan', 'combine', { goesOn, weighting: 'plan' }),
    ],
  },
  {
    name: 'one_sided_routes',
    kernels: ['one_sided_dispatch', 'experts_plan', 'example_experts', 'other_work', 'one_sided_combine'],
    configurations: [
      ...push.rounds('push', returned),
      ...push.loss('by route', 'combine', { goesOn, weighting: 'source' }),
    ],
  },
  {
    name: 'one_sided_e4m3',
    kernels: weighing,
    configurations: [
      ...push.rounds('push', narrow),
      ...push.given('e4m3, nothing between dispatch and combine', { combineFormat: 'e4m3' }),
      ...push.loss('e4m3', 'combine', { goesOn, combineFormat: 'e4m3' }),
    ],
  },
  {
    name: 'one_sided_split',
    kernels: [
      ...['one_sided_dispatch_send', 'one_sided_dispatch_recv', 'example_experts', 'other_work'],
      ...['one_sided_weigh', 'one_sided_combine_send', 'one_sided_combine_recv'],
    ],
    configurations: [
      ...push.rounds('push', { ...splitRounds, ...maskedSplitRounds, ...apart }),
      ...push.given('split, nothing between anything', { split: true }),
      ...push.given('split, rows written again behind a send', { split: true, reusedBehind: 'dispatch' }),
      ...push.loss('push, split', 'dispatch', halves),
      ...push.loss('push, split', 'combine', halves),
    ],
  },
].map((subject) => ({ ...subject, family: family.name }));
