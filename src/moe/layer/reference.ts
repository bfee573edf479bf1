/**
 * Dispatch and combine in the plainest code: no windows, no flags, no parallelism. Kernels must agree
 * with it bit by bit. docs/semantics.md says the same in sentences.
 */

import { ArgumentError, requireArray, requireInteger } from '../../base/errors.js';
import { type Bits, formatOf, fromF32, requireBits, toF32 } from '../formats/index.js';
import { add, scaleRow, treeSum } from './arithmetic.js';
import {
  combineWeighs,
  expertsOf,
  isExpert,
  ownerOf,
  ranksOf,
  requireShape,
  type Shape,
  sharing,
  sourceWeighs,
} from './shape.js';
import { requireSource, requireSources, type Source } from './source.js';

export { expand, plan, reduce } from './expert-rows.js';
export { mlp, scaledMlp, widen } from './mlp.js';
export { route } from './routing.js';

export type { Source } from './source.js';

/**
 * The rows that one rank receives. Slot (s, t) holds token t of source s, at row s · maxTokens + t: a slot is the token's own
 * index, so nothing has to be counted and equal inputs always land in equal places. A source is a rank; with
 * `replicas`, a group of them.
 */
export interface ReferenceReceived {
  /** `[sources, maxTokens, topK]`: the token's ids where this rank owns the expert, −1 everywhere else. */
  readonly experts: Int32Array;
  /** `[sources, maxTokens, topK]`: the weight of each route in `experts`, 0 where that is −1. */
  readonly weights: Float32Array;
  /** By name: `[sources, maxTokens, rowBytes]`. Rows of slots without a route here hold nothing defined (here: zeros). */
  readonly payloads: Readonly<Record<string, Uint8Array>>;
  /** `[experts of this rank]`: how many routes each of them got. A repeated expert counts every time. */
  readonly counts: Uint32Array;
}

/** The effect of a round that leaves ranks out: their tokens do not exist, and routes to their experts are none. */
export function without(shape: Shape, sources: readonly Source[], masked: readonly number[]): Source[] {
  requireShape(shape);
  requireSources('sources', shape, sources);
  requireArray('masked', masked);
  for (const [i, rank] of masked.entries()) requireInteger(`masked[${i}]`, rank, 0, shape.ranks - 1);
  const dropped = (id: number) => isExpert(shape, id) && masked.includes(ownerOf(shape, id));
  return sources.map((source, rank) => ({
    ...source,
    tokens: masked.includes(rank) ? 0 : source.tokens,
    topkIds: source.topkIds.map((id) => (dropped(id) ? -1 : id)),
  }));
}

/** The rows that `rank` receives when all `sources` dispatch. */
export function dispatch(shape: Shape, sources: readonly Source[], rank: number): ReferenceReceived {
  requireShape(shape);
  requireInteger('rank', rank, 0, shape.ranks - 1);
  requireSources('sources', shape, sources);
  const { maxTokens, topK } = shape;
  const { groups, replicas } = sharing(shape);
  const slots = groups * maxTokens;
  const experts = new Int32Array(slots * topK).fill(-1);
  const weights = new Float32Array(slots * topK);
  const payloads = Object.fromEntries(
    shape.payloads.map(({ name, rowBytes }) => [name, new Uint8Array(slots * rowBytes)]),
  );
  const mine = expertsOf(shape, rank);
  const counts = new Uint32Array(mine.count);

  for (let from = 0; from < groups; from++) {
    const source = sources[from * replicas]!;
    for (let token = 0; token < source.tokens; token++) {
      const slot = from * maxTokens + token;
      let wanted = false;
      for (let k = 0; k < topK; k++) {
        const route = token * topK + k;
        const expert = source.topkIds[route]!;
        if (!isExpert(shape, expert) || ownerOf(shape, expert) !== rank) continue;
        experts[slot * topK + k] = expert;
        weights[slot * topK + k] = source.topkWeights?.[route] ?? 0;
        counts[expert - mine.first]! += 1;
        wanted = true;
      }
      if (!wanted) continue;
      // Once, however many of the token's experts live here.
      for (const { name, rowBytes } of shape.payloads) {
        const row = source.payloads[name]!.subarray(token * rowBytes, (token + 1) * rowBytes);
        payloads[name]!.set(row, slot * rowBytes);
      }
    }
  }
  return { experts, weights, payloads, counts };
}

/**
 * The rows that source `rank` gets back: for each of its tokens the sum, over the ranks that own its experts, of
 * their partial rows. Where rows are summed inside each of several equal nodes first, so many are `nodes`.
 *
 * `outputs[r]` is what rank r's experts wrote, stored as `output.dtype`: `[sources, maxTokens, hidden]`, or
 * `[sources, maxTokens, topK, hidden]` when combine applies the weights. Only rows of slots and routes that rank r
 * received are read. The result is `[tokens, hidden]`; where combine adds (`output.adds`), to the rows `onto`.
 */
export function combine(
  shape: Shape,
  source: Source,
  rank: number,
  outputs: readonly Bits[],
  nodes = 1,
  onto?: Bits,
): Bits {
  requireShape(shape);
  requireInteger('rank', rank, 0, shape.ranks - 1);
  requireSource('source', shape, source);
  requireOutputs(shape, outputs);
  requireInteger('nodes', nodes, 1, shape.ranks);
  if (shape.ranks % nodes !== 0)
    throw new ArgumentError('nodes', nodes, `a divisor of ${shape.ranks}, the number of ranks`);
  const { topK, maxTokens, output } = shape;
  const group = Math.floor(rank / sharing(shape).replicas);
  const result = new Float32Array(source.tokens * output.hidden);
  for (let token = 0; token < source.tokens; token++) {
    const routes = source.topkIds.subarray(token * topK, (token + 1) * topK);
    const slot = group * maxTokens + token;
    if (sourceWeighs(shape)) {
      const rows = weightedRows(shape, source, token, slot, (expert) => outputs[ownerOf(shape, expert)]!);
      result.set(treeSum(rows, output.hidden), token * output.hidden);
      continue;
    }
    const partials = ranksOf(shape, routes).map((owner) => {
      const rows = outputs[owner]!;
      if (!combineWeighs(shape)) return { owner, row: rowOf(shape, rows, slot) };
      const own = (expert: number) => (ownerOf(shape, expert) === owner ? rows : null);
      // As it is stored before it travels.
      const sum = treeSum(weightedRows(shape, source, token, slot, own), output.hidden);
      return { owner, row: stored(shape, sum) };
    });
    const sum = nodes === 1 ? sumOfRanks(shape, partials) : sumOfNodes(shape, partials, rank, nodes);
    result.set(sum, token * output.hidden);
  }
  const sums = fromF32(output.dtype, result);
  if (output.adds !== true) return sums;
  requireBits('onto', output.dtype, onto, result.length);
  return fromF32(output.dtype, add(toF32(output.dtype, onto!), toF32(output.dtype, sums)));
}

/** The result of a rank's experts for a token. */
interface Partial {
  readonly owner: number;
  readonly row: Float32Array;
}

const sumOfRanks = (shape: Shape, partials: readonly Partial[]): Float32Array =>
  treeSum(
    partials.map(({ row }) => travel(shape, row)),
    shape.output.hidden,
  );

/**
 * Each node sums what its ranks made. The source's own node begins, with +0 if none of its ranks is an owner; the sums of
 * the others travel, and are added one after another in ascending order of nodes.
 */
function sumOfNodes(shape: Shape, partials: readonly Partial[], rank: number, nodes: number): Float32Array {
  const { ranks, output } = shape;
  const nodeOf = (rank: number) => Math.floor((rank * nodes) / ranks);
  const sumOf = (node: number): Float32Array =>
    treeSum(
      partials.filter(({ owner }) => nodeOf(owner) === node).map(({ row }) => row),
      output.hidden,
    );
  let sum = sumOf(nodeOf(rank));
  const others = [...new Set(partials.map(({ owner }) => nodeOf(owner)))].filter(
    (node) => node !== nodeOf(rank),
  );
  for (const node of others.sort((a, b) => a - b)) sum = add(sum, travel(shape, stored(shape, sumOf(node))));
  return sum;
}

const rowOf = ({ output: { dtype, hidden } }: Shape, rows: Bits, index: number): Float32Array =>
  toF32(dtype, rows.subarray(index * hidden, (index + 1) * hidden));

/** What the experts of a token's routes made, times their weights, in order of k: of those experts whose rows are `from` somewhere. */
function weightedRows(
  shape: Shape,
  source: Source,
  token: number,
  slot: number,
  from: (expert: number) => Bits | null,
): Float32Array[] {
  const weighted: Float32Array[] = [];
  for (let k = 0; k < shape.topK; k++) {
    const route = token * shape.topK + k;
    const expert = source.topkIds[route]!;
    const rows = isExpert(shape, expert) ? from(expert) : null;
    if (rows === null) continue;
    weighted.push(scaleRow(rowOf(shape, rows, slot * shape.topK + k), source.topkWeights?.[route] ?? 0));
  }
  return weighted;
}

/** A sum that waits to travel: rounded to the output's type, unless it will be rounded as it travels. */
function stored({ output }: Shape, row: Float32Array): Float32Array {
  const dtype = formatOf(output).sums(output.dtype);
  return toF32(dtype, fromF32(dtype, row));
}

/** A row as it arrives. Ranks of one node round rows that stay on their rank, too. */
const travel = ({ output }: Shape, row: Float32Array): Float32Array => formatOf(output).arrives(row);

function requireOutputs(shape: Shape, outputs: readonly Bits[]): void {
  const { ranks, maxTokens, topK, output } = shape;
  requireArray('outputs', outputs, `what the experts of each of ${ranks} ranks wrote`, ranks);
  const rows = sharing(shape).groups * maxTokens * (combineWeighs(shape) ? topK : 1);
  for (let rank = 0; rank < ranks; rank++) {
    requireBits(`outputs[${rank}]`, output.dtype, outputs[rank], rows * output.hidden);
  }
}
