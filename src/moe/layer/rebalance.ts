/** From counted routes a placement that gives all ranks equal work. */
import { ArgumentError, requireInteger, requireObject } from '../../base/errors.js';
import { type Placement, requireCounts, requirePlaces } from './placement.js';
import { limits } from './shape.js';

/** The shape for which a placement is made. */
export interface RebalanceOptions {
  readonly ranks: number;
  /** The places of all ranks together: at least as many as experts, and as many on every rank. Places beyond those hold replicas. */
  readonly places: number;
  /** Equal nodes of consecutive ranks, default 1: an expert's replicas are spread over them. */
  readonly nodes?: number;
}

/**
 * A placement for experts that got so many routes. The same for the same arguments, so every rank may compute it by itself.
 *
 * Replicas go one by one to the expert with the most routes a replica. Then replicas go, the busiest first, to the rank that has
 * the least to do, and no two of an expert to one rank. Last the busiest rank exchanges replicas with others while that helps.
 */
export function rebalance(counts: ArrayLike<number>, options: RebalanceOptions): Placement {
  requireCounts(counts);
  requireObject('options', options);
  const { ranks, places, nodes = 1 } = options;
  const experts = requireInteger('counts.length', counts.length, 1, limits.experts);
  requireInteger('ranks', ranks, 1, limits.ranks);
  requirePlaces('places', places, { experts, ranks });
  requireInteger('nodes', nodes, 1, ranks);
  if (ranks % nodes !== 0) throw new ArgumentError('nodes', nodes, `a divisor of ranks, ${ranks}`);

  const replicas = replicated(Array.from(counts), places, ranks);
  const packed = pack(replicas, { ranks, room: places / ranks, nodes });
  const mean = packed.reduce((sum, { load }) => sum + load, 0) / ranks;
  // Closer than that is not worth the search, and more exchanges than that were never needed.
  for (let n = 0; n < 64 * ranks && exchange(packed, 1.001 * mean); n++);
  return { experts, ranks, places: packed.flatMap(({ held }) => lined(held, places / ranks)) };
}

/** One place's worth of an expert. */
interface Replica {
  readonly expert: number;
  readonly load: number;
}

/** A rank, and the replicas of experts that it holds. */
interface Holder {
  readonly held: Replica[];
  readonly experts: Set<number>;
  load: number;
}

/** As many replicas as there are places, unless every rank has every expert before. */
function replicated(counts: readonly number[], places: number, ranks: number): Replica[] {
  const of = counts.map(() => 1);
  const more = Math.min(places, counts.length * ranks) - counts.length;
  for (let n = 0; n < more; n++) {
    let best = -1;
    for (const [expert, have] of of.entries()) {
      if (have === ranks) continue;
      const gain = best === -1 ? 1 : counts[expert]! * of[best]! - counts[best]! * have;
      if (gain > 0 || (gain === 0 && have < of[best]!)) best = expert;
    }
    of[best]!++;
  }
  return of
    .flatMap((count, expert) => new Array<Replica>(count).fill({ expert, load: counts[expert]! / count }))
    .sort((a, b) => b.load - a.load || a.expert - b.expert);
}

function pack(
  replicas: readonly Replica[],
  { ranks, room, nodes }: { readonly ranks: number; readonly room: number; readonly nodes: number },
): Holder[] {
  const holders = Array.from({ length: ranks }, (): Holder => ({ held: [], experts: new Set(), load: 0 }));
  const nodeOf = (rank: number): number => Math.floor((rank * nodes) / ranks);
  for (const replica of replicas) {
    const has = holders.map(({ experts }) => experts.has(replica.expert));
    const nodeHas = Array.from({ length: nodes }, (_, node) =>
      has.some((own, r) => own && nodeOf(r) === node),
    );
    /** The smaller, the better; compared from left to right. */
    const cost = (rank: number): number[] => [
      Number(has[rank]),
      Number(nodeHas[nodeOf(rank)]),
      holders[rank]!.load,
      holders[rank]!.held.length,
    ];
    const free = [...holders.keys()].filter((rank) => holders[rank]!.held.length < room);
    const best = free.reduce((a, b) => (before(cost(b), cost(a)) ? b : a));
    if (has[best]) give(replica, holders, best);
    else add(holders[best]!, replica);
  }
  return holders;
}

const before = (a: readonly number[], b: readonly number[]): boolean => {
  const at = a.findIndex((value, i) => value !== b[i]);
  return at !== -1 && a[at]! < b[at]!;
};

function add(holder: Holder, replica: Replica): void {
  holder.held.push(replica);
  holder.experts.add(replica.expert);
  holder.load += replica.load;
}

/** All ranks with room have the expert: one that has not takes it, and gives one of its own to the rank with room. */
function give(replica: Replica, holders: readonly Holder[], to: number): void {
  const target = holders[to]!;
  for (const other of holders) {
    if (other.experts.has(replica.expert)) continue;
    const i = other.held.findLastIndex(({ expert }) => !target.experts.has(expert));
    if (i === -1) continue;
    const [given] = other.held.splice(i, 1);
    other.experts.delete(given!.expert);
    other.load -= given!.load;
    add(other, replica);
    add(target, given!);
    return;
  }
  add(target, replica);
}

/**
 * Lets the busiest rank exchange one replica with another rank, for the greatest gain. Returns false if that rank has
 * no more than enough, or if no exchange gains anything.
 */
function exchange(holders: readonly Holder[], enough: number): boolean {
  const busiest = holders.reduce((a, b) => (b.load > a.load ? b : a));
  if (busiest.load <= enough) return false;
  let best: { readonly other: Holder; readonly i: number; readonly j: number } | null = null;
  // Rounding must not let two ranks exchange the same for ever.
  let least = busiest.load * (1 - 1e-9);
  for (const other of holders) {
    if (other === busiest) continue;
    for (const [i, mine] of busiest.held.entries()) {
      for (const [j, theirs] of other.held.entries()) {
        const moved = mine.load - theirs.load;
        if (moved <= 0 || other.experts.has(mine.expert) || busiest.experts.has(theirs.expert)) continue;
        const most = Math.max(busiest.load - moved, other.load + moved);
        if (most < least) [least, best] = [most, { other, i, j }];
      }
    }
  }
  if (best === null) return false;
  const { other, i, j } = best;
  const [mine, theirs] = [busiest.held[i]!, other.held[j]!];
  busiest.held.splice(i, 1);
  other.held.splice(j, 1);
  for (const [holder, gone, come] of [
    [busiest, mine, theirs],
    [other, theirs, mine],
  ] as const) {
    holder.experts.delete(gone.expert);
    holder.load -= gone.load;
    add(holder, come);
  }
  return true;
}

/** A rank's places. */
function lined(held: readonly Replica[], room: number): number[] {
  const experts = held.map(({ expert }) => expert).sort((a, b) => a - b);
  return [...experts, ...new Array<number>(room - experts.length).fill(-1)];
}
