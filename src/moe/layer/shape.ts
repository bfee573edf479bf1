/**
 * The shape of the operation: everything that is fixed when an ExpertParallel is created. Kernels are specialised
 * to it, the reference follows it, `requireShape` refuses the ones that make no sense.
 */

import { ArgumentError, requireInteger, requireObject, requireOneOf } from '../../base/errors.js';
import { maxWorldRanks } from '../../gpu/index.js';
import { maxPeers } from '../../lang/index.js';
import {
  dtypes,
  type RowDtype,
  type RowFormatName,
  rowFormatNames,
  type ScaledFormatName,
} from '../formats/index.js';

/** One row of opaque bytes that travels with every token: activations, scales, ids … */
export interface Payload {
  /** Its name among the received tensors: `received.x`. */
  readonly name: string;
  /** Bytes of one token's row. Any length; a multiple of 16 moves fastest. */
  readonly rowBytes: number;
  /** Callers bring its rows as bf16, and dispatch makes e4m3 of them in this format; the next payload is their scales. */
  readonly rounded?: ScaledFormatName;
}

/** Whether payload `p` is the scales of the one before it, which dispatch makes with it. */
export const areScales = ({ payloads }: Pick<Shape, 'payloads'>, p: number): boolean =>
  payloads[p - 1]?.rounded !== undefined;

/** Whether dispatch makes payload `p`: rounded rows, or their scales. Others travel as callers bring them. */
export const isMade = (shape: Pick<Shape, 'payloads'>, p: number): boolean =>
  shape.payloads[p]!.rounded !== undefined || areScales(shape, p);

/** The payloads that are sent by themselves: scales go with the rows that they are made with. */
export const sentPayloads = (shape: Pick<Shape, 'payloads'>): number[] =>
  shape.payloads.map((_, p) => p).filter((p) => !areScales(shape, p));

/** The side that multiplies by the router weights, and where combine finds the rows if it does. */
export const weightings = ['experts', 'plan', 'source'] as const;

/** Whether experts leave an unweighted row for each route, and combine weighs them: before or behind their way home. */
export const combineWeighs = ({ output: { weighting = 'experts' } }: Pick<Shape, 'output'>): boolean =>
  weighting !== 'experts';

/** Whether a row for each route travels home, to be weighed and added up there. */
export const sourceWeighs = ({ output }: Pick<Shape, 'output'>): boolean => output.weighting === 'source';

/** The rows that combine reads from the experts and returns to the sources. */
export interface Output {
  readonly dtype: RowDtype;
  /** Elements of a row. */
  readonly hidden: number;
  /**
   * The side that multiplies by the router weights.
   * - `'experts'` (default): the experts do. They leave one finished row per (token, rank): `[groups, maxTokens, hidden]`.
   * - `'plan'`: combine does, on the experts' rank, before anything travels. The experts leave one unweighted row per route,
   *   where a plan put it. For the reference that is `[groups, maxTokens, topK, hidden]`.
   * - `'source'`: the source does, and adds up a token's routes by itself: experts leave rows as for `'plan'`, and every one of them travels.
   *   So a sum has the same bits wherever experts live.
   */
  readonly weighting?: (typeof weightings)[number];
  /**
   * How rows travel. `'rows'` (default) sends them in `dtype`; `'e4m3'` and `'mxfp8'` send 8-bit floats with one scale per
   * 128 or 32 elements: about half the bytes of bf16, with an error of at most 1/17 of the block's largest magnitude per row
   * (docs/semantics.md).
   */
  readonly combineFormat?: RowFormatName;
  /** Combine adds each sum, once it is rounded, to what the caller's tensor holds. Default false: it overwrites that. */
  readonly adds?: boolean;
}

/** The shape of one expert-parallel layer. The same on all its ranks. */
export interface Shape {
  /** How many ranks share the experts. */
  readonly ranks: number;
  /** Experts of all ranks together; their ids are 0 … experts − 1. */
  readonly experts: number;
  /** Routes of a token, no more than there are experts. */
  readonly topK: number;
  /** The most tokens that a rank brings to one round. A multiple of `replicas`. */
  readonly maxTokens: number;
  /**
   * So many consecutive ranks are a group, and all of it bring the same tokens: the tensor-parallel ranks of one
   * data-parallel group. Default 1. Divides `ranks`.
   */
  readonly replicas?: number;
  /** The rows that travel with a token: at most 8 payloads. */
  readonly payloads: readonly Payload[];
  /** The rows that come back. */
  readonly output: Output;
}

/** A layer as kernels are made for it: its shape, and what is delivered beside the rows. */
export interface Layer extends Shape {
  /** Router weights travel beside the expert ids. */
  readonly weights: boolean;
  /** Routes are counted per local expert. */
  readonly counts: boolean;
  /** Ranks may be left out while the layer lives. */
  readonly masks?: boolean;
  /** Kernels count how long they wait for each peer. */
  readonly waits?: boolean;
  /**
   * Routes name one of so many experts, and a placement says in which of the `experts` places of the shape each lives. Absent: an
   * id is a place.
   */
  readonly placed?: number;
}

/**
 * How the ranks of a group share out its tokens: in turns of `replicas` tokens, one for each. So rank r takes token
 * turn · replicas + r % replicas of group r / replicas: it sends it, and adds up what comes back.
 */
export function sharing({ ranks, maxTokens, replicas = 1 }: Pick<Shape, 'ranks' | 'maxTokens' | 'replicas'>) {
  return { replicas, groups: ranks / replicas, turns: maxTokens / replicas };
}

/** The first rank of a rank's group. */
export function firstOf({ replicas = 1 }: Pick<Shape, 'replicas'>, rank: number): number {
  return rank - (rank % replicas);
}

/**
 * The ranks' shares of the experts, contiguous: the first `extra` ranks own `base + 1`, the others `base`.
 * Ids below `cut` belong to the larger ranks. These numbers are all that a kernel needs (see `ownerOf`). With fewer experts than ranks
 * the last ranks own none.
 */
export function expertShares(shape: Pick<Shape, 'experts' | 'ranks'>) {
  const base = Math.floor(shape.experts / shape.ranks);
  const extra = shape.experts % shape.ranks;
  return { base, extra, cut: extra * (base + 1) };
}

/**
 * The rank that owns an expert. Needs no table and one division by a constant, so a kernel computes it the same
 * way: below the cut every rank has `base + 1` experts, above it `base`. (`base` is 0 only when every id is below
 * the cut.)
 */
export function ownerOf(shape: Pick<Shape, 'experts' | 'ranks'>, expert: number): number {
  const { base, extra, cut } = expertShares(shape);
  return expert < cut ? Math.floor(expert / (base + 1)) : extra + Math.floor((expert - cut) / base);
}

/** The experts of a rank: ids `first` … `first + count − 1`. */
export function expertsOf(
  shape: Pick<Shape, 'experts' | 'ranks'>,
  rank: number,
): { readonly first: number; readonly count: number } {
  const { base, extra } = expertShares(shape);
  return { first: rank * base + Math.min(rank, extra), count: rank < extra ? base + 1 : base };
}

/** Whether a route names an expert. −1 is 'no expert'; any other id out of range means the same to the device. */
export function isExpert(shape: Pick<Shape, 'experts'>, id: number): boolean {
  return id >= 0 && id < shape.experts;
}

/**
 * The ranks that own a token's experts, each once, in order of first appearance among its routes. The order
 * matters: combine sums the ranks' rows in it.
 */
export function ranksOf(shape: Pick<Shape, 'experts' | 'ranks'>, routes: Iterable<number>): number[] {
  const ranks: number[] = [];
  for (const id of routes) {
    if (!isExpert(shape, id)) continue;
    const owner = ownerOf(shape, id);
    if (!ranks.includes(owner)) ranks.push(owner);
  }
  return ranks;
}

/**
 * The limits of the operation. The simulator has a limit of its own, `maxSimulatedRanks`: more ranks than a kernel may have, so
 * that a world of several nodes fits one machine.
 */
export const limits = {
  /** That share the experts, for every rank has an address in each launch: one NVLink domain, an NVL72 rack. */
  ranks: maxPeers,
  /** Ranks of a world: groups, transfers and plans may span several such domains. */
  worldRanks: maxWorldRanks,
  experts: 65_536,
  topK: 32,
  maxTokens: 2 ** 20,
  payloads: 8,
  /** The bytes of one payload, and of one row of expert output. */
  rowBytes: 2 ** 20,
} as const;

/** Payloads cannot take the names of what is received beside them. */
const reservedNames = ['experts', 'weights', 'counts', 'output'];

export function requireShape(shape: Shape): Shape {
  requireObject('shape', shape);
  requireInteger('ranks', shape.ranks, 1, limits.ranks);
  requireInteger('experts', shape.experts, 1, limits.experts);
  requireInteger('topK', shape.topK, 1, limits.topK);
  if (shape.topK > shape.experts)
    throw new ArgumentError('topK', shape.topK, `at most the number of experts, ${shape.experts}`);
  requireInteger('maxTokens', shape.maxTokens, 1, limits.maxTokens);
  requireReplicas(shape);
  requirePayloads(shape.payloads);
  requireOutput(shape);
  return shape;
}

function requireReplicas({ ranks, maxTokens, replicas = 1 }: Shape): void {
  requireInteger('replicas', replicas, 1, ranks);
  if (ranks % replicas !== 0)
    throw new ArgumentError('replicas', replicas, `a number that divides the ranks, ${ranks}`);
  if (maxTokens % replicas !== 0)
    throw new ArgumentError('maxTokens', maxTokens, `a multiple of replicas, ${replicas}`);
}

function requirePayloads(payloads: Shape['payloads']): void {
  if (!Array.isArray(payloads) || payloads.length > limits.payloads) {
    throw new ArgumentError('payloads', payloads, `an array of at most ${limits.payloads}`);
  }
  const names = new Set<string>();
  for (const [i, payload] of payloads.entries()) {
    requireObject(`payloads[${i}]`, payload);
    const { name, rowBytes } = payload;
    if (typeof name !== 'string' || !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new ArgumentError(`payloads[${i}].name`, name, 'a name of letters, digits and underscores');
    }
    if (reservedNames.includes(name)) {
      throw new ArgumentError(`payloads[${i}].name`, name, `other than ${reservedNames.join(', ')}`);
    }
    if (names.has(name))
      throw new ArgumentError(`payloads[${i}].name`, name, 'different from the names before it');
    names.add(name);
    requireInteger(`payloads[${i}].rowBytes`, rowBytes, 1, limits.rowBytes);
  }
}

function requireOutput({ output, replicas = 1 }: Shape): void {
  requireObject('output', output);
  requireOneOf('output.dtype', output.dtype, ['f32', 'bf16', 'f16']);
  requireInteger('output.hidden', output.hidden, 1, limits.rowBytes / dtypes[output.dtype].size);
  if (output.weighting !== undefined) {
    requireOneOf('output.weighting', output.weighting, weightings);
  }
  if (output.combineFormat !== undefined)
    requireOneOf('output.combineFormat', output.combineFormat, rowFormatNames);
  if (output.adds !== true) return;
  if ((output.hidden * dtypes[output.dtype].size) % 16 !== 0) {
    const possible = 'rows of whole 16 bytes, for sums are added to them';
    throw new ArgumentError('output.hidden', output.hidden, possible);
  }
  if (replicas > 1) throw new ArgumentError('adds', true, 'false where ranks share tokens (replicas)');
}
