/** How many bytes a round moves, counted from its routes: what deduplication saves, what crosses NVLink. */
import { ArgumentError, requireArray, requireInteger, requireObject } from '../../base/errors.js';
import { formatOf, rowFormats } from '../formats/index.js';
import type { Source } from './reference.js';
import { isExpert, limits, ranksOf, requireShape, type Shape, sharing, sourceWeighs } from './shape.js';

/** Bytes of one phase or both. Only rows count: ids, weights and flags (some 8 · topK bytes a row) do not. */
export interface Bytes {
  /** Payload rows, once per (token, rank that owns any of its experts). */
  readonly dispatch: number;
  /**
   * Partial rows as they travel, once per (token, rank) likewise, or per route where the source weighs; and the sums that ranks of a group
   * hand each other.
   */
  readonly combine: number;
  /** Both phases together if every route had rows of its own. */
  readonly withoutDedup: number;
}

/** The traffic of one round of all ranks. */
export interface Traffic extends Bytes {
  /** The tokens of all ranks; those of a group of ranks count once. */
  readonly tokens: number;
  /** Routes that name an expert. */
  readonly routes: number;
  /** (token, rank) pairs: rows sent in each phase. */
  readonly rows: number;
  /** Sums that the rank which made them hands to the others of its group. */
  readonly sums: number;
  /** The part that leaves its GPU: what NVLink carries. The rest is copied within a GPU. */
  readonly remote: Bytes & { readonly rows: number };
  /** The part that crosses the network between nodes, by rails: a row once for each (token, other node). */
  readonly between: Pick<Bytes, 'dispatch' | 'combine'> & { readonly rows: number };
  /** Rows that each rank sends to other ranks in dispatch, and gets back in combine. Its largest bounds the round. */
  readonly leaving: readonly number[];
  /** Rows that each rank gets from other ranks in dispatch, and sends back in combine. */
  readonly arriving: readonly number[];
}

/** Bytes of one token's payloads. */
export function dispatchRowBytes(shape: Pick<Shape, 'payloads'>): number {
  return shape.payloads.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
}

/** Bytes of a row that the experts leave, and of one that combine returns. */
export function outputRowBytes({ output }: Pick<Shape, 'output'>): number {
  return rowFormats.rows.bytes(output);
}

/** Bytes of one partial row as it travels, scales included. */
export function combineRowBytes({ output }: Pick<Shape, 'output'>): number {
  return formatOf(output).bytes(output);
}

/** Counts a round; `routes[r]` are rank r's. `nodes`: of equal nodes of consecutive ranks. */
export function traffic(
  shape: Shape,
  routes: readonly Pick<Source, 'tokens' | 'topkIds'>[],
  nodes = 1,
): Traffic {
  requireShape(shape);
  requireRoutes(shape, routes);
  requireInteger('nodes', nodes, 1, shape.ranks);
  if (shape.ranks % nodes !== 0)
    throw new ArgumentError('nodes', nodes, `a divisor of ${shape.ranks}, the number of ranks`);
  const nodeOf = (rank: number): number => Math.floor((rank * nodes) / shape.ranks);
  const leaving = new Array<number>(shape.ranks).fill(0);
  const arriving = new Array<number>(shape.ranks).fill(0);
  let [tokens, live, liveRemote, rows, rowsRemote, rowsBetween] = [0, 0, 0, 0, 0, 0];
  const { replicas } = sharing(shape);
  for (const [rank, source] of routes.entries()) {
    for (let token = rank % replicas; token < source.tokens; token += replicas) {
      tokens++;
      const ids = source.topkIds.subarray(token * shape.topK, (token + 1) * shape.topK);
      for (const id of ids) {
        if (!isExpert(shape, id)) continue;
        live++;
        if (ranksOf(shape, [id])[0] !== rank) liveRemote++;
      }
      const owners = ranksOf(shape, ids);
      rowsBetween += new Set(owners.map(nodeOf).filter((node) => node !== nodeOf(rank))).size;
      for (const owner of owners) {
        rows++;
        if (owner === rank) continue;
        rowsRemote++;
        leaving[rank]!++;
        arriving[owner]!++;
      }
    }
  }
  const there = dispatchRowBytes(shape);
  const back = combineRowBytes(shape);
  const sums = tokens * (replicas - 1);
  const bytes = (deduplicated: number, all: number): Bytes => ({
    dispatch: deduplicated * there,
    combine: (sourceWeighs(shape) ? all : deduplicated) * back + sums * outputRowBytes(shape),
    withoutDedup: all * (there + back),
  });
  return {
    tokens,
    routes: live,
    rows,
    sums,
    ...bytes(rows, live),
    remote: { rows: rowsRemote, ...bytes(rowsRemote, liveRemote) },
    between: { rows: rowsBetween, dispatch: rowsBetween * there, combine: rowsBetween * back },
    leaving,
    arriving,
  };
}

function requireRoutes(shape: Shape, routes: readonly Pick<Source, 'tokens' | 'topkIds'>[]): void {
  requireArray('routes', routes, `the routes of each of ${shape.ranks} ranks`, shape.ranks);
  for (let rank = 0; rank < shape.ranks; rank++) {
    const at = `routes[${rank}]`;
    requireObject(at, routes[rank]);
    const { tokens, topkIds } = routes[rank]!;
    const ids = requireInteger(`${at}.tokens`, tokens, 0, limits.maxTokens) * shape.topK;
    if (!(topkIds instanceof Int32Array) || topkIds.length < ids) {
      throw new ArgumentError(`${at}.topkIds`, topkIds, `an Int32Array of at least ${ids} ids`);
    }
  }
}
