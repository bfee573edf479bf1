/**
 * Whole rounds of the portable family, over windows and over NVSHMEM (by the twins of its functions). Each configuration is there for something that the others lack.
 */
import { portable as family } from '../../../moe/families/index.js';
import type { CheckSubject } from '../subject.js';
import { checksOf } from './general.js';
import {
  each,
  maskedRounds,
  maskedSplitRounds,
  nine,
  pairs,
  type Rounds,
  roundedRows,
  roundsOverNvshmem,
  splitRounds,
  wholeRounds,
} from './rounds.js';

/** Routes come in chunks of 32 tokens; rows are messages of their own, which overtake each other. */
const messages: Readonly<Record<string, Partial<Rounds>>> = {
  'two chunks, few of whose tokens go': {
    ...{ maxTokens: 34, topK: 4, experts: 4, blocks: 3, routes: { holes: 0.8 } },
    tokens: [
      [34, 1],
      [0, 33],
    ],
  },
  'a chunk that vectors do not divide, two warps': {
    ...{ maxTokens: 3, topK: 3, counts: true, blocks: 1, threads: 64 },
  },
  'waits counted, a rank left out': { ...maskedRounds['a rank left out'], waits: true },
  'rows of fewer units than parts': { hidden: 8, parts: 3, extra: [1, 2] },
  'odd rows of bf16, in parts': { hidden: 5, parts: 2, blocks: 3 },
  'odd rows of f32, top 12 on 9 ranks': { ...nine, hidden: 3, dtype: 'f32' },
  'more in flight than a warp loads at a time': { hidden: 9 * 32 * 8, maxTokens: 1, times: 1 },
  // Of a part's warp some lanes have no vector, and scales are a lane's that others send.
  'rows rounded by dispatch, in parts': roundedRows({ length: 1280 }, { parts: 2 }),
  'rows rounded by dispatch to mxfp8': roundedRows({ format: 'mxfp8' }, { maxTokens: 1 }),
};

const weighed = each(
  { weighting: 'plan' },
  {
    'combine weighs': { topK: 3, experts: 5, counts: true },
    'combine weighs, odd rows': { hidden: 5 },
    'combine weighs, split': { split: true },
  },
);

/** Rows are rounded on their way. */
const narrow = each(
  { combineFormat: 'e4m3' },
  {
    e4m3: { hidden: 16, ranks: 3, counts: true },
    mxfp8: { combineFormat: 'mxfp8', hidden: 144, ranks: 3, maxTokens: 1 },
    'e4m3, weighed by combine, split': {
      ...{ hidden: 144, topK: 3, weighting: 'plan', routes: { holes: 0.3 }, split: true },
    },
    'e4m3, two stretches, in parts': { hidden: 1040, parts: 2, maxTokens: 1, dtype: 'f32', times: 2 },
    'e4m3, groups of 3, in parts, two warps': {
      ...{ hidden: 1040, parts: 2, threads: 64, dtype: 'f32', times: 2, uneven: true },
      ...{ ranks: 6, replicas: 3, experts: 6, maxTokens: 3 },
    },
    // A part holds three stretches of 512 elements, of which the last has two vectors only.
    'e4m3, one resident block': { hidden: 1040, residentBlocks: 1, maxTokens: 3 },
  },
);

const apart: Readonly<Record<string, Partial<Rounds>>> = {
  ...splitRounds,
  ...maskedSplitRounds,
  'split, waits counted beside routes': { split: true, waits: true, counts: true },
  'split, groups of 2, odd rows, two chunks': {
    ...{ ...pairs, split: true, maxTokens: 34, hidden: 3, routes: { holes: 0.8 } },
    tokens: [[34, 34, 1, 1]],
  },
};

const windows = checksOf(family);
const nvshmem = checksOf(family, 'nvshmem');

const halves = [
  ...['portable_dispatch_send', 'portable_dispatch_recv', 'example_experts', 'other_work'],
  ...['portable_combine_send', 'portable_combine_recv'],
];

export const portable: readonly CheckSubject[] = [
  {
    name: 'portable',
    kernels: halves,
    configurations: [
      ...windows.rounds('portable', { ...wholeRounds, ...maskedRounds, ...messages, ...apart }),
      ...windows.given('portable, nothing between dispatch and combine'),
      ...windows.given('portable, ids by a kernel before it', { routed: true }),
      ...windows.given('portable, split, rows written again behind a send', {
        split: true,
        reusedBehind: 'dispatch',
      }),
      // Counting takes several blocks, which all give up.
      ...windows.loss('portable, counts', 'dispatch', { counts: true }),
      // Without counts, a receive begins beside its own send, and gives up there.
      ...windows.loss('portable', 'dispatch'),
      ...windows.loss('portable', 'combine'),
      ...windows.loss('portable', 'combine', { replicas: 2 }),
      ...windows.loss('portable, split', 'combine', { split: true }),
      // Here a warp waits in vain for several sums of its group, while all rows have come.
      ...windows.loss('portable', 'combine', {
        ...{ replicas: 2, split: true, afterSend: true, own: { 'combine.parts': 2 } },
      }),
    ],
  },
  {
    name: 'portable_weigh',
    kernels: [...halves.slice(0, 3), 'portable_weigh', ...halves.slice(3)],
    configurations: [
      ...windows.rounds('portable', { ...weighed, ...narrow }),
      ...windows.loss('portable, e4m3', 'combine', { combineFormat: 'e4m3' }),
    ],
  },
  {
    name: 'portable_nvshmem',
    kernels: halves,
    configurations: [
      ...nvshmem.rounds('portable over nvshmem', {
        ...roundsOverNvshmem,
        'rows rounded by dispatch': roundedRows({}, { threads: 64 }),
      }),
      ...nvshmem.given('portable over nvshmem, nothing between dispatch and combine'),
      // A put reads the caller's rows until its signal has been seen.
      ...nvshmem.given('portable over nvshmem, rows written again behind combine', {
        reusedBehind: 'combine',
      }),
      ...nvshmem.loss('portable over nvshmem, counts', 'dispatch', { counts: true }),
      ...nvshmem.loss('portable over nvshmem', 'combine'),
    ],
  },
].map((subject) => ({ ...subject, family: family.name }));
