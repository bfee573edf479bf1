/**
 * Whole rounds of the hybrid family, on nodes whose networks deliver in any order, late and in pieces. Each configuration
 * is there for something that the others lack.
 */
import { hybrid as family } from '../../../moe/families/index.js';
import type { CheckSubject } from '../subject.js';
import { checksOf } from './general.js';
import { hybridLies } from './lies.js';
import { mailOf } from './mail.js';
import { each, maskedRounds, pairs, type Rounds, roundedRows, roundsOnNodes } from './rounds.js';
import { stopsOf } from './stops.js';

/** Two nodes of two ranks, and three: tokens go to experts of several. */
const four = { ranks: 4, experts: 8, topK: 3 };
const six = { ranks: 6, nodes: 3, experts: 6, topK: 4, maxTokens: 1, blocks: 1 };
/** A message for each token, or for two. */
const alone = { own: { chunk: 1 } };
const inPairs = { own: { chunk: 2 } };
/** Rows in parts, which two warps take. */
const inParts = { parts: 2, threads: 64 };

const nodes: Readonly<Record<string, Partial<Rounds>>> = {
  '2 nodes of 2 ranks': { ...four, counts: true },
  '2 nodes of 2 ranks, uneven tokens, several chunks': {
    ...{ ...four, ...inPairs, experts: 9, maxTokens: 5, counts: true, inspect: true, uneven: true },
  },
  '3 nodes of 2 ranks': six,
  '3 nodes, a message for each token': { ...alone, ranks: 3, nodes: 3, maxTokens: 3, routes: { holes: 0.3 } },
  // More rows of other nodes than are loaded at once, as f32, whose sums tell their order; the warps that watch take turns
  // with the nodes.
  '6 nodes, two warps, a message for each token': {
    ...{ ...six, ...alone, nodes: 6, topK: 6, maxTokens: 2, threads: 64, dtype: 'f32' },
    tokens: [[2, 1, 2, 2, 0, 2]],
  },
  'a chunk of one node alone': { ...inPairs, ranks: 4, nodes: 4, topK: 1, maxTokens: 3 },
  'one block of two warps, several chunks and tokens': {
    ...{ ...four, ...inPairs, topK: 2, threads: 64, blocks: 1, maxTokens: 4, hidden: 560, counts: true },
  },
  'odd rows of bf16, in parts': { hidden: 5, parts: 2 },
  // A node is one group, or several; parts of sums go to several others.
  // Parts are so long that a warp needs several steps for one.
  'groups of 2, odd rows, in parts, split': {
    ...{ ...pairs, ...inParts, topK: 3, maxTokens: 6, hidden: 67, split: true, times: 2, uneven: true },
  },
  'groups of 2': { ...four, ...pairs, ...alone, maxTokens: 4, counts: true, uneven: true },
  '3 nodes of groups of 2, in parts, two warps': {
    ...{ ...inParts, ranks: 6, nodes: 3, replicas: 2, experts: 6, blocks: 1, hidden: 24 },
  },
  'groups of 3, e4m3, in parts, split': {
    ...{ ...inParts, ranks: 6, replicas: 3, maxTokens: 6, combineFormat: 'e4m3', hidden: 1040, split: true },
    ...{ times: 2, uneven: true },
  },
  'groups of 2 of 4, odd rows, a graph': {
    ...{ ranks: 8, replicas: 2, experts: 8, maxTokens: 2, hidden: 5, graph: true, blocks: 1, times: 1 },
  },
  'groups of 2, one resident block': { ...pairs, ...alone, residentBlocks: 1, maxTokens: 4 },
  // The proxy sees no message; a chunk may come before the first of its round.
  'messages in GPU memory': { ...four, ...alone, wires: 'gpu', maxTokens: 4, counts: true, uneven: true },
  'messages in GPU memory, split': { ...alone, wires: 'gpu', ranks: 4, experts: 8, split: true },
  // A rank of the second node takes over the rail of the other: its own line comes first, and the one behind it has chunks, too.
  'a rank left out, several chunks': {
    ...{ ...four, ...alone, maxTokens: 3, counts: true, inspect: true },
    leaveOut: { before: 1, ranks: [2] },
  },
  'two left out, of either node, a graph': { ...four, graph: true, leaveOut: { before: 1, ranks: [0, 3] } },
  'a node left out, and one more, split': { ...six, split: true, leaveOut: { before: 1, ranks: [2, 3, 5] } },
  'a rank left out and back': { ...four, leaveOut: { before: 1, until: 2, ranks: [1] } },
  'waits counted, a rank left out': {
    ...{ ...four, ...alone, maxTokens: 3, waits: true },
    leaveOut: { before: 1, ranks: [2] },
  },
  '2 nodes of 2 ranks, a graph': { ...alone, ranks: 4, graph: true, counts: true },
  split: { split: true, ranks: 4 },
  // Of both rounds in flight; it runs twice.
  'split, a graph, replayed': { ...alone, split: true, rounds: 2, graph: true, times: 4 },
  'combine weighs': { ranks: 4, weighting: 'plan', topK: 3, experts: 5 },
  e4m3: { ranks: 4, combineFormat: 'e4m3', hidden: 144, topK: 3, dtype: 'f16' },
  mxfp8: { ranks: 4, combineFormat: 'mxfp8', hidden: 144, maxTokens: 1 },
  // A block rounds several rows of one message, and a row is longer than its warps round in one turn.
  'rows rounded by dispatch': roundedRows({ length: 640 }, { ...inPairs, ranks: 4, maxTokens: 3 }),
  'rows rounded by dispatch to mxfp8, two warps': roundedRows(
    { format: 'mxfp8', length: 384 },
    { threads: 64, blocks: 1 },
  ),
  'e4m3, weighed by combine, two stretches, in parts': {
    ...{ combineFormat: 'e4m3', hidden: 1040, parts: 2, weighting: 'plan', maxTokens: 1 },
  },
};

/** A rank comes back to a graph: its proxy begins anew, as its windows do. */
const back: Readonly<Record<string, Partial<Rounds>>> = Object.fromEntries(
  Object.entries(maskedRounds).filter(([name]) => name.endsWith('a graph') && !name.startsWith('all others')),
);

/** Chunks of two tokens. */
const checks = checksOf(family, 'windows', inPairs.own);
/** Warps that watch: two of them for messages of one node. */
const watching = { nodes: 3, own: { 'combine.threads': 96 } };

/** The work of a node before it is stopped: five launches of each rank, and on the rail two messages that come and two that are heard of. */
const stopping = {
  family: 'hybrid',
  tuning: { dispatch: { blocks: 1, threads: 32, chunk: 1 }, combine: { blocks: 1, threads: 32, parts: 1 } },
} as const;

const kernels = [
  ...['hybrid_dispatch_send', 'hybrid_dispatch_recv', 'example_experts', 'other_work', 'hybrid_weigh'],
  ...['hybrid_combine_send', 'hybrid_combine_recv'],
];

export const hybrid: CheckSubject = {
  name: 'hybrid',
  family: family.name,
  kernels,
  configurations: [
    ...checks.rounds('hybrid', each({ nodes: 2 }, roundsOnNodes)),
    ...checks.rounds('hybrid', each({ nodes: 2 }, nodes)),
    ...checks.rounds('hybrid', each({ nodes: 3 }, back)),
    // Routes are counted by several blocks, and each of them must give up.
    ...checks.loss('hybrid, counts', 'dispatch', { ...watching, counts: true }),
    ...checks.loss('hybrid', 'combine', watching),
    // Ranks of the victim's node miss it where they meet, those of the others on its rail.
    // One warp misses a message, another one a chunk behind it.
    ...checks.loss('hybrid, nodes of 2', 'dispatch', {
      ...{ nodes: 2, ranks: 4, own: { 'dispatch.threads': 64, 'combine.threads': 96 } },
    }),
    // Neither a rank of the first node nor the first of its own, named by the ranks of its node and of its rail.
    ...(['dispatch', 'combine'] as const).flatMap((operation) =>
      checks.loss('hybrid, nodes of 2', operation, {
        ...watching,
        nodes: 2,
        ranks: 4,
        victim: 3,
        silent: true,
      }),
    ),
    // One warp watches for all messages.
    ...checks.loss('hybrid, nodes of 2', 'combine', { nodes: 2, ranks: 4 }),
    ...checks.loss('hybrid', 'combine', { ...watching, nodes: 2, replicas: 2 }),
    // Several blocks wait in vain for sums of their group, each warp for several sums, and for nothing else.
    ...checks.loss('hybrid', 'combine', {
      ...{ nodes: 2, replicas: 2, split: true, afterSend: true },
      own: { 'combine.blocks': 3, 'combine.parts': 2 },
    }),
    ...checks.loss('hybrid', 'dispatch', { ...watching, nodes: 2, replicas: 2 }),
    ...hybridLies,
    mailOf('hybrid'),
    ...stopsOf('hybrid, 3 nodes', 13, { ...stopping, nodes: 3, ranks: 3 }),
    ...stopsOf('hybrid, 2 nodes of 2, messages in GPU memory', 18, {
      ...{ ...stopping, nodes: 2, ranks: 4 },
      wires: 'gpu',
    }),
  ],
};
