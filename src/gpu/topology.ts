/**
 * Which ranks share a node: can map each other's windows, and so run kernels that write straight into them. A world is
 * one node or several; ranks of different ones meet over the fabric.
 */
import { HeddleError, requireArray, requireInteger, requireThat } from '../base/errors.js';
import { getOrMake } from '../base/maps.js';

/** The most ranks that a world may have: several NVLink domains. */
export const maxWorldRanks = 1024;

/** The most GPUs of a simulated machine: more than the ranks of one kernel, so that a world of several nodes fits one. */
export const maxSimulatedRanks = 128;

/** The nodes of a world, as one of its ranks sees them. */
export interface Topology {
  readonly nodes: number;
  /** This rank's, from 0; nodes are numbered in the order of their first ranks. */
  readonly node: number;
  /** This rank among those of its node, from 0. */
  readonly localRank: number;
  readonly localRanks: number;
  /** [node]: its ranks in the world, ascending; `members[node][localRank]` is this one. */
  readonly members: readonly (readonly number[])[];
  /** Why not all ranks are of this rank's node; null where they are, or where somebody said so. */
  readonly apart: string | null;
}

/** The view of `rank`, where `nodeOf[r]` names the node of rank r: the same value for those that share one. */
export function topologyOf(nodeOf: readonly unknown[], rank: number, apart: string | null = null): Topology {
  requireArray('nodeOf', nodeOf, "each rank's node, by rank");
  requireInteger('rank', rank, 0, nodeOf.length - 1);
  const known = new Map<unknown, number[]>();
  for (const [r, name] of nodeOf.entries()) {
    getOrMake(known, name, () => []).push(r);
  }
  const members = [...known.values()];
  const own = known.get(nodeOf[rank])!;
  return {
    nodes: members.length,
    node: members.indexOf(own),
    localRank: own.indexOf(rank),
    localRanks: own.length,
    members,
    apart: members.length === 1 ? null : apart,
  };
}

/**
 * For each rank, the first rank of its node. `reaches[r][p]` says whether rank r could map memory of rank p.
 * @throws HeddleError if the ranks form no nodes: two reach a third, but not each other.
 */
export function nodesByReach(reaches: readonly (readonly boolean[])[]): number[] {
  const each = (a: number, b: number) => a === b || (reaches[a]![b]! && reaches[b]![a]!);
  const nodeOf = reaches.map((_, rank) => reaches.findIndex((_, first) => each(rank, first)));
  for (const [a, first] of nodeOf.entries()) {
    for (const [b, other] of nodeOf.entries()) {
      if ((first === other) === each(a, b) || first > other) continue;
      const between = first === other ? [a, b, first] : [first, b, a];
      throw new HeddleError(
        'HEDDLE_TOPOLOGY',
        `ranks ${between[0]} and ${between[1]} can map memory of rank ${between[2]}, but not each other's: ` +
          'such ranks form no nodes; say how many equal nodes of consecutive ranks there are (HEDDLE_NODES)',
      );
    }
  }
  return nodeOf;
}

/** Equal nodes of consecutive ranks. */
export function evenNodes(ranks: number, nodes: number): number[] {
  requireInteger('ranks', ranks, 1, maxWorldRanks);
  requireInteger('nodes', nodes, 1, ranks);
  requireThat(ranks % nodes === 0, 'nodes', nodes, `a divisor of ${ranks}, the number of ranks`);
  return Array.from({ length: ranks }, (_, rank) => Math.floor((rank * nodes) / ranks));
}
