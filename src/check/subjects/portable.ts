/** Whole rounds of the portable family over windows. Each configuration is there for something that the others lack. */
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { givenRows } from './given-rows.js';
import { lossOf } from './losses.js';
import { type Carrier, common, configurationsOf, type Rounds } from './rounds.js';

/** Routes come in chunks of 32 tokens; rows are messages of their own, which overtake each other. */
const messages: Readonly<Record<string, Partial<Rounds>>> = {
  'two chunks, few of whose tokens go': {
    maxTokens: 34,
    routes: { holes: 0.8 },
    tokens: [
      [34, 1],
      [0, 33],
    ],
  },
  'a chunk that vectors do not divide': { maxTokens: 3, topK: 3, counts: true },
  'rows of fewer units than parts': { hidden: 8, parts: 3, extra: [1, 2] },
  'odd rows of bf16, in parts': { hidden: 5, parts: 2, blocks: 3 },
  'odd rows of f32, top 12 on 9 ranks': {
    ranks: 9,
    experts: 18,
    topK: 12,
    maxTokens: 1,
    hidden: 3,
    dtype: 'f32',
    blocks: 1,
    tokens: [Array(9).fill(1), Array(9).fill(1)],
  },
  'more in flight than a warp loads at a time': { hidden: 9 * 32 * 8, maxTokens: 1, tokens: [[1, 1]] },
};

const weighed: Readonly<Record<string, Partial<Rounds>>> = {
  'combine weighs': { weighting: 'combine', topK: 3, experts: 5, counts: true },
  'combine weighs, odd rows': { weighting: 'combine', hidden: 5 },
  'combine weighs, split': { weighting: 'combine', split: true },
};

/** Rows travel as e4m3. */
const narrow: Readonly<Record<string, Partial<Rounds>>> = {
  e4m3: { wire: 'e4m3', hidden: 16, ranks: 3, counts: true },
  'e4m3, weighed by combine, split': {
    wire: 'e4m3',
    hidden: 144,
    topK: 3,
    weighting: 'combine',
    routes: { holes: 0.3 },
    split: true,
  },
  'e4m3, two stretches, in parts': {
    wire: 'e4m3',
    hidden: 1040,
    parts: 2,
    maxTokens: 1,
    dtype: 'f32',
    tokens: [
      [1, 1],
      [1, 1],
    ],
  },
  'e4m3, groups of 2, in parts': {
    ...{ wire: 'e4m3', hidden: 1040, parts: 2, dtype: 'f32' },
    ...{ ranks: 4, replicas: 2, tokens: [Array(4).fill(2), Array(4).fill(1)] },
  },
  'e4m3, one resident block': { wire: 'e4m3', hidden: 16, residentBlocks: 1, maxTokens: 3 },
};

/** Other work lies between the halves. */
const apart: Readonly<Record<string, Partial<Rounds>>> = split({
  split: {},
  'split, counts, two warps': { hidden: 560, parts: 2, blocks: 3, threads: 64, counts: true },
  'split, uneven tokens': {
    ranks: 3,
    experts: 7,
    maxTokens: 3,
    tokens: [
      [3, 1, 2],
      [0, 0, 0],
      [1, 3, 0],
      [2, 2, 3],
    ],
  },
  'split, groups of 2, odd rows, two chunks': {
    ...{ ranks: 4, replicas: 2, maxTokens: 34, hidden: 3, routes: { holes: 0.8 }, tokens: [[34, 34, 1, 1]] },
  },
  'split, two rounds in flight': {
    ...{ rounds: 2, ranks: 3 },
    tokens: [
      [2, 1, 2],
      [1, 2, 0],
      [0, 2, 1],
      [2, 2, 2],
      [1, 0, 2],
    ],
  },
  'split, a graph, replayed': { graph: true, counts: true },
});

const launch = { blocks: 2, threads: 32, parts: 1 };
const alone: Carrier = { family: 'portable', tuning: { dispatch: launch, combine: launch } };

const halves = [
  'portable_dispatch_send',
  'portable_dispatch_recv',
  'example_experts',
  'portable_combine_send',
  'portable_combine_recv',
];

export const portable: readonly CheckSubject[] = [
  {
    name: 'portable',
    kernels: halves,
    configurations: [
      ...configurations({ ...common, ...messages, ...apart }),
      givenRows('portable, nothing between dispatch and combine', alone),
      // Counting takes several blocks, which all give up.
      lossOf('portable, counts', 'dispatch', { ...alone, counts: true }),
      lossOf('portable', 'combine', alone),
      lossOf('portable', 'combine', { ...alone, replicas: 2 }),
      lossOf('portable, split', 'combine', { ...alone, split: true }),
    ],
  },
  {
    name: 'portable_weigh',
    kernels: [...halves.slice(0, 3), 'portable_weigh', ...halves.slice(3)],
    configurations: [
      ...configurations({ ...weighed, ...narrow }),
      lossOf('portable, e4m3', 'combine', alone, 'e4m3'),
    ],
  },
];

function configurations(all: Readonly<Record<string, Partial<Rounds>>>): CheckConfiguration[] {
  return configurationsOf('portable', all, ({ blocks, threads, parts }) => {
    const launch = { blocks, threads, parts };
    return { family: 'portable', tuning: { dispatch: launch, combine: launch } };
  });
}

function split(all: Readonly<Record<string, Partial<Rounds>>>): Readonly<Record<string, Partial<Rounds>>> {
  return Object.fromEntries(Object.entries(all).map(([name, of]) => [name, { split: true, ...of }]));
}
