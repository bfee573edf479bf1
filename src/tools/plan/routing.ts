/**
 * To whom a token goes, as exact expectations: how many of its routes name experts of a rank, and with what probability
 * at least one does, for every rank and every node.
 */
import { ArgumentError, requireInteger } from '../../base/errors.js';
import { expertsOf, ownerOf, type Profile } from '../../moe/layer/index.js';
import { interleaved } from '../../verify/testing/index.js';

/** How a router chooses; the same laws that `makeRoutes` draws from. */
export type RoutingLaw =
  /** `nodesAtMost`: the router first picks so many nodes at random, and experts only of those. */
  | { readonly kind: 'uniform'; readonly nodesAtMost?: number }
  /** Consecutive routes go to consecutive ranks. */
  | { readonly kind: 'perfect' };

export interface RankPlacement {
  readonly ranks: number;
  /** Ranks that share NVLink; consecutive ones. */
  readonly perNode: number;
}

/** The experts that one token names, by rank and node, whoever brings it. */
export interface Hits {
  /** [rank]: routes that name one of its experts. */
  readonly routes: Float64Array;
  /** [rank]: the probability that any does: rows to that rank, each once. */
  readonly ranks: Float64Array;
  /** [node]: the same of a node. */
  readonly nodes: Float64Array;
  /** How likely any of so many consecutive tokens of one rank names each rank and each node: whom the rank sends anything. */
  reach(tokens: number): Pick<Hits, 'ranks' | 'nodes'>;
}

export const nodesOf = ({ ranks, perNode }: RankPlacement): number => Math.ceil(ranks / perNode);

/**
 * Experts live in order.
 *
 * @throws ArgumentError where ranks cannot be placed, or experts cannot be shared among them.
 */
export function hits(layer: Profile, place: RankPlacement, law: RoutingLaw): Hits {
  const { ranks } = place;
  requireInteger('ep', ranks, 1, 4096);
  const experts = placed(layer.experts, ranks);
  return law.kind === 'perfect'
    ? perfect(experts, layer.topK, place)
    : uniform(experts, layer.topK, place, law.nodesAtMost);
}

/**
 * With more ranks than experts, every expert has as many copies as it takes to give each rank one; a copy counts as
 * an expert of its own.
 */
function placed(experts: number, ranks: number): number {
  if (ranks <= experts) return experts;
  if (ranks % experts !== 0)
    throw new ArgumentError('ep', ranks, `at most ${experts}, the number of experts, or a multiple of it`);
  return ranks;
}

function uniform(
  experts: number,
  topK: number,
  { ranks, perNode }: RankPlacement,
  nodesAtMost = nodesOf({ ranks, perNode }),
): Hits {
  const ofRanks = Array.from({ length: ranks }, (_, rank) => expertsOf({ experts, ranks }, rank).count);
  const nodes = Array.from({ length: nodesOf({ ranks, perNode }) }, (_, node) =>
    ofRanks.slice(node * perNode, (node + 1) * perNode).reduce((sum, count) => sum + count, 0),
  );
  // The experts among which the router may choose once its nodes are picked, and how likely a node is picked.
  const picked = Math.min(1, nodesAtMost / nodes.length);
  const open = experts * picked;
  if (picked < 1 && nodes.some((count) => count * nodes.length !== experts))
    throw new ArgumentError(
      'nodes a token',
      nodesAtMost,
      'left out where nodes own unequal numbers of experts',
    );
  if (open < topK) throw new ArgumentError('nodes a token', nodesAtMost, `enough for ${topK} experts`);
  const hit = (count: number): number => {
    let missed = 1;
    for (let i = 0; i < topK; i++) missed *= Math.max(0, (open - count - i) / (open - i));
    return picked * (1 - missed);
  };
  const of = { ranks: Float64Array.from(ofRanks, hit), nodes: Float64Array.from(nodes, hit) };
  // Tokens do not know of each other.
  const any = (tokens: number) => (p: number) => 1 - (1 - p) ** tokens;
  return {
    ...of,
    routes: Float64Array.from(ofRanks, (count) => (topK * count) / experts),
    reach: (tokens) => ({ ranks: of.ranks.map(any(tokens)), nodes: of.nodes.map(any(tokens)) }),
  };
}

/** Counts tokens that are all as likely; each is given by the owners of its routes. */
function tallied(
  tokens: readonly (readonly number[])[],
  { ranks, perNode }: RankPlacement,
): Omit<Hits, 'reach'> {
  const found = {
    routes: new Float64Array(ranks),
    ranks: new Float64Array(ranks),
    nodes: new Float64Array(nodesOf({ ranks, perNode })),
  };
  for (const met of tokens) {
    for (const rank of met) found.routes[rank]! += 1 / tokens.length;
    for (const rank of new Set(met)) found.ranks[rank]! += 1 / tokens.length;
    for (const node of new Set(met.map((rank) => Math.floor(rank / perNode))))
      found.nodes[node]! += 1 / tokens.length;
  }
  return found;
}

/** Tokens run through the experts in turn; every start is as likely as any other. */
function perfect(experts: number, topK: number, place: RankPlacement): Hits {
  const shape = { experts, ranks: place.ranks };
  const owners = interleaved(shape).map((id) => ownerOf(shape, id));
  const run = (routes: number): Omit<Hits, 'reach'> =>
    tallied(
      owners.map((_, start) => Array.from({ length: routes }, (_, k) => owners[(start + k) % experts]!)),
      place,
    );
  return { ...run(topK), reach: (tokens) => run(Math.min(experts, Math.ceil(tokens) * topK)) };
}
