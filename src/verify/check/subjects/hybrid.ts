/**
 * Whole rounds of the hybrid family, on nodes whose networks deliver in any order, late and in pieces. Each configuration
 * is there for something that the others lack.
 */
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { hybridLies } from './lies.js';
import { lossOf } from './losses.js';
import { commonNodes, configurationsOf, type Rounds } from './rounds.js';
import { stopsOf } from './stops.js';

/** A round's shape, and how many tokens are a message. */
interface Hybrid extends Rounds {
  readonly chunk: number;
}

const nodes: Readonly<Record<string, Partial<Hybrid>>> = {
  '2 nodes of 2 ranks': { ranks: 4, experts: 8, topK: 3, counts: true },
  '2 nodes of 2 ranks, uneven tokens, several chunks': {
    ranks: 4,
    experts: 9,
    topK: 3,
    maxTokens: 5,
    chunk: 2,
    counts: true,
    inspect: true,
    tokens: [
      [5, 0, 2, 1],
      [0, 0, 0, 0],
      [1, 4, 0, 5],
    ],
  },
  '3 nodes of 2 ranks': { ranks: 6, nodes: 3, experts: 6, topK: 4, maxTokens: 1, blocks: 1 },
  '3 nodes, a message for each token': { ranks: 3, nodes: 3, chunk: 1, maxTokens: 3, routes: { holes: 0.3 } },
  // More rows of other nodes than are loaded at once, as f32, whose sums tell their order; the warps that watch take turns
  // with the nodes.
  '6 nodes, two warps, a message for each token': {
    ...{
      ranks: 6,
      nodes: 6,
      experts: 6,
      topK: 6,
      maxTokens: 2,
      chunk: 1,
      blocks: 1,
      threads: 64,
      dtype: 'f32',
    },
    tokens: [[2, 1, 2, 2, 0, 2]],
  },
  'a chunk of one node alone': { ranks: 4, nodes: 4, topK: 1, chunk: 2, maxTokens: 3 },
  'one block of two warps, several chunks and tokens': {
    ...{
      ranks: 4,
      experts: 8,
      topK: 2,
      threads: 64,
      blocks: 1,
      maxTokens: 4,
      chunk: 2,
      hidden: 560,
      counts: true,
    },
  },
  'odd rows of bf16, in parts': { hidden: 5, parts: 2 },
  // A node is one group, or several; parts of sums go to several others.
  // Rows of several owners of a node, which parts, chunks and tokens share.
  'sums at the source': { sum: 'source', ranks: 4, experts: 8, topK: 4, maxTokens: 4, chunk: 3 },
  'sums at the source, 3 nodes of 2, uneven tokens, combine weighs': {
    ...{
      sum: 'source',
      ranks: 6,
      nodes: 3,
      experts: 6,
      topK: 4,
      maxTokens: 2,
      blocks: 1,
      weighting: 'combine',
    },
    routes: { holes: 0.3 },
    tokens: [
      [2, 0, 1, 2, 0, 1],
      [0, 1, 2, 0, 2, 2],
    ],
  },
  // Parts are so long that a warp needs several steps for one.
  'sums at the source, groups of 2, odd rows, in parts, split': {
    ...{
      sum: 'source',
      ranks: 4,
      replicas: 2,
      topK: 3,
      maxTokens: 6,
      hidden: 67,
      parts: 2,
      split: true,
      threads: 64,
    },
    tokens: [
      [6, 6, 5, 5],
      [2, 2, 6, 6],
    ],
  },
  'groups of 2': {
    ...{ ranks: 4, replicas: 2, experts: 8, topK: 3, maxTokens: 4, chunk: 1, counts: true },
    tokens: [
      [4, 4, 3, 3],
      [0, 0, 2, 2],
      [1, 1, 4, 4],
    ],
  },
  '3 nodes of groups of 2, in parts, two warps': {
    ...{ ranks: 6, nodes: 3, replicas: 2, experts: 6, blocks: 1, threads: 64, parts: 2, hidden: 24 },
  },
  'groups of 3, e4m3, in parts, split': {
    ...{
      ranks: 6,
      replicas: 3,
      maxTokens: 6,
      wire: 'e4m3',
      hidden: 1040,
      parts: 2,
      threads: 64,
      split: true,
    },
    tokens: [
      [6, 6, 6, 2, 2, 2],
      [4, 4, 4, 5, 5, 5],
    ],
  },
  'groups of 2 of 4, odd rows, a graph': {
    ...{
      ranks: 8,
      replicas: 2,
      experts: 8,
      maxTokens: 2,
      hidden: 5,
      graph: true,
      blocks: 1,
      tokens: [Array(8).fill(2)],
    },
  },
  'groups of 2, one resident block': { ranks: 4, replicas: 2, residentBlocks: 1, maxTokens: 4, chunk: 1 },
  // The proxy sees no message; a chunk may come before the first of its round.
  'messages in GPU memory': {
    ...{ wires: 'gpu', ranks: 4, experts: 8, topK: 3, maxTokens: 4, chunk: 1, counts: true },
    tokens: [
      [4, 0, 2, 1],
      [0, 0, 0, 0],
      [1, 4, 0, 3],
    ],
  },
  'messages in GPU memory, sums at the source, split': {
    ...{ wires: 'gpu', sum: 'source', ranks: 4, experts: 8, topK: 4, chunk: 1, split: true },
  },
  // A rank of the second node takes over the rail of the other: its own line comes first, and the one behind it has chunks, too.
  'a rank left out, several chunks': {
    ...{ ranks: 4, experts: 8, topK: 3, maxTokens: 3, chunk: 1, counts: true, inspect: true },
    leaveOut: { before: 1, ranks: [2] },
  },
  'two left out, of either node, a graph': {
    ...{ ranks: 4, experts: 8, topK: 3, graph: true },
    leaveOut: { before: 1, ranks: [0, 3] },
  },
  'a node left out, and one more, split': {
    ...{ ranks: 6, nodes: 3, experts: 6, topK: 4, maxTokens: 1, blocks: 1, split: true },
    leaveOut: { before: 1, ranks: [2, 3, 5] },
  },
  'a rank left out and back': {
    ranks: 4,
    experts: 8,
    topK: 3,
    leaveOut: { before: 1, until: 2, ranks: [1] },
  },
  'sums at the source, a rank left out': {
    ...{ ranks: 4, sum: 'source', topK: 3, dtype: 'f32' },
    leaveOut: { before: 1, ranks: [1] },
  },
  '2 nodes of 2 ranks, a graph': { ranks: 4, graph: true, chunk: 1, counts: true },
  split: { split: true, ranks: 4 },
  // Of both rounds in flight; it runs twice.
  'split, a graph, replayed': {
    split: true,
    rounds: 2,
    graph: true,
    chunk: 1,
    tokens: Array(4).fill([2, 2]),
  },
  'combine weighs': { ranks: 4, weighting: 'combine', topK: 3, experts: 5 },
  e4m3: { ranks: 4, wire: 'e4m3', hidden: 144, topK: 3, dtype: 'f16' },
  mxfp8: { ranks: 4, wire: 'mxfp8', hidden: 144, maxTokens: 1 },
  'e4m3, weighed by combine, two stretches, in parts': {
    ...{ wire: 'e4m3', hidden: 1040, parts: 2, weighting: 'combine', maxTokens: 1 },
  },
};

const alone = {
  family: 'hybrid',
  nodes: 3,
  tuning: {
    dispatch: { blocks: 2, threads: 32, chunk: 2 },
    // Warps that watch: two of them for messages of one node.
    combine: { blocks: 2, threads: 96, parts: 1 },
  },
} as const;

/** Of each rank five launches, and on the rail two messages that come and two that are heard of. */
const stopping = {
  family: 'hybrid',
  tuning: { dispatch: { blocks: 1, threads: 32, chunk: 1 }, combine: { blocks: 1, threads: 32, parts: 1 } },
} as const;

const kernels = [
  'hybrid_dispatch_send',
  'hybrid_dispatch_recv',
  'example_experts',
  'hybrid_weigh',
  'hybrid_combine_send',
  'hybrid_combine_recv',
];

export const hybrid: CheckSubject = {
  name: 'hybrid',
  kernels,
  configurations: [
    ...configurations(commonNodes),
    ...configurations(nodes),
    // Routes are counted by several blocks, and each of them must give up.
    lossOf('hybrid, counts', 'dispatch', { ...alone, counts: true }),
    lossOf('hybrid', 'combine', alone),
    // Ranks of the victim's node miss it where they meet, those of the others on its rail.
    // One warp misses a message, another one a chunk behind it.
    lossOf('hybrid, nodes of 2', 'dispatch', {
      ...{ ...alone, nodes: 2, ranks: 4 },
      tuning: { ...alone.tuning, dispatch: { blocks: 2, threads: 64, chunk: 2 } },
    }),
    // Neither a rank of the first node nor the first of its own, named by the ranks of its node and of its rail.
    ...(['dispatch', 'combine'] as const).map((operation) =>
      lossOf('hybrid, nodes of 2', operation, { ...alone, nodes: 2, ranks: 4, victim: 3, silent: true }),
    ),
    // One warp watches for all messages.
    lossOf('hybrid, nodes of 2', 'combine', {
      ...{ ...alone, nodes: 2, ranks: 4 },
      tuning: { ...alone.tuning, combine: { blocks: 2, threads: 32, parts: 1 } },
    }),
    lossOf('hybrid', 'combine', { ...alone, nodes: 2, replicas: 2 }),
    // Several blocks wait in vain for sums of their group, each warp for several sums, and for nothing else.
    lossOf('hybrid', 'combine', {
      ...{ ...alone, nodes: 2, replicas: 2, split: true, afterSend: true },
      tuning: { ...alone.tuning, combine: { blocks: 3, threads: 32, parts: 2 } },
    }),
    lossOf('hybrid', 'dispatch', { ...alone, nodes: 2, replicas: 2 }),
    ...hybridLies,
    ...stopsOf('hybrid, 3 nodes', 13, { ...stopping, nodes: 3, ranks: 3 }),
    ...stopsOf('hybrid, 2 nodes of 2, messages in GPU memory', 18, {
      ...{ ...stopping, nodes: 2, ranks: 4 },
      wires: 'gpu',
    }),
  ],
};

function configurations(all: Readonly<Record<string, Partial<Hybrid>>>): CheckConfiguration[] {
  const onNodes = Object.entries(all).map(([name, of]) => [name, { nodes: 2, ...of }] as const);
  return configurationsOf(
    'hybrid',
    Object.fromEntries(onNodes),
    ({ blocks, threads, parts, maxTokens, replicas }, { chunk = 2 }) => ({
      family: 'hybrid',
      tuning: {
        dispatch: { blocks, threads, chunk: Math.min(chunk, maxTokens / replicas) },
        combine: { blocks, threads, parts },
      },
    }),
  );
}
