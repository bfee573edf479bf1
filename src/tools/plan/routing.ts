/**
 * To whom a token goes, as exact expectations: how many of its routes name experts of a rank, and with what probability
 * at least one does, for every rank and every node.
 */
import { ArgumentError, requireInteger } from '../../base/errors.js';
import {
  expertsOf,
  limits,
  ownerOf,
  type Placement,
  type Profile,
  placesByExpert,
  rankOfPlace,
  rebalance,
} from '../../moe/layer/index.js';
import { byPopularity, interleaved } from '../../verify/testing/index.js';

/** How a router chooses; the same laws that `makeRoutes` draws from. */
export type RoutingLaw =
  /** `nodesAtMost`: the router first picks so many nodes at random, and experts only of those. */
  | { readonly kind: 'uniform'; readonly nodesAtMost?: number }
  /** Consecutive routes go to consecutive ranks. */
  | { readonly kind: 'perfect' }
  /** The n-th most popular expert is chosen in proportion to n^−exponent; who is popular is drawn from the seed. */
  | { readonly kind: 'skewed'; readonly exponent: number; readonly seed: number }
  /** How often each expert was chosen, as measured. */
  | { readonly kind: 'counts'; readonly counts: readonly number[] }
  /** The experts of every token, as measured. */
  | { readonly kind: 'routes'; readonly tokens: readonly (readonly number[])[] };

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

/** Adds whom tokens reach that do not know of each other. */
function independent(of: Omit<Hits, 'reach'>): Hits {
  const any = (tokens: number) => (p: number) => 1 - (1 - p) ** tokens;
  return {
    ...of,
    reach: (tokens) => ({ ranks: of.ranks.map(any(tokens)), nodes: of.nodes.map(any(tokens)) }),
  };
}

export const nodesOf = ({ ranks, perNode }: RankPlacement): number => Math.ceil(ranks / perNode);

/**
 * Experts live in order, or as a placement says: then an expert's tokens are dealt out evenly to its places, whoever brings them.
 *
 * @throws ArgumentError where ranks cannot be placed, or experts cannot be shared among them.
 */
export function hits(layer: Profile, place: RankPlacement, law: RoutingLaw, placement?: Placement): Hits {
  const { ranks } = place;
  requireInteger('ep', ranks, 1, 4096);
  const experts = placed(layer.experts, ranks);
  const { topK } = layer;
  const weights = weightsOf(law, layer);
  if (weights !== null) {
    // In order every copy counts as an expert.
    const of = placement ?? inOrder(experts, ranks);
    return weighted(
      Array.from({ length: of.experts }, (_, i) => weights[i % layer.experts]!),
      topK,
      of,
      place,
    );
  }
  if (law.kind === 'routes') return counted(law.tokens, layer, place, placement);
  if (law.kind === 'perfect') return perfect(experts, topK, place);
  return uniform(experts, topK, place, law.kind === 'uniform' ? law.nodesAtMost : undefined);
}

/** How a router that chooses by weights weighs each expert; null for one that does not. */
function weightsOf(law: RoutingLaw, { experts, topK }: Profile): Float64Array | null {
  if (law.kind === 'counts') return weightsFor(law.counts, experts, topK);
  if (law.kind !== 'skewed') return null;
  const weights = new Float64Array(experts);
  for (const [n, id] of byPopularity(experts, law.seed).entries()) weights[id] = (n + 1) ** -law.exponent;
  return weights;
}

function inOrder(experts: number, ranks: number): Placement {
  const each = Math.ceil(experts / ranks);
  const places = Array.from({ length: ranks }, (_, rank) => {
    const { first, count } = expertsOf({ experts, ranks }, rank);
    return Array.from({ length: each }, (_, i) => (i < count ? first + i : -1));
  });
  return { experts, ranks, places: places.flat() };
}

/** How likely a token names each expert. */
const chosen = (layer: Profile, law: RoutingLaw): Float64Array =>
  hits(layer, { ranks: layer.experts, perNode: layer.experts }, law).routes;

/**
 * So many places for experts, by how often each is chosen.
 *
 * @throws ArgumentError where ranks cannot have equally many, or routes are even, so that no placement is better than another.
 */
export function placementFor(
  layer: Profile,
  place: RankPlacement,
  law: RoutingLaw,
  places: number,
): Placement {
  if (law.kind === 'uniform' || law.kind === 'perfect')
    throw new ArgumentError('places', places, 'given with skewed loads: add --skew or --loads');
  if (place.ranks > limits.ranks)
    throw new ArgumentError('ep', place.ranks, `at most ${limits.ranks} where experts have places`);
  return rebalance(chosen(layer, law), { ranks: place.ranks, places, nodes: nodesOf(place) });
}

/** The routes of the busiest rank over the mean of all. */
export const busiestOf = ({ routes }: Hits): number =>
  (Math.max(...routes) * routes.length) / routes.reduce((sum, one) => sum + one, 0);

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
  return independent({
    routes: Float64Array.from(ofRanks, (count) => (topK * count) / experts),
    ranks: Float64Array.from(ofRanks, hit),
    nodes: Float64Array.from(nodes, hit),
  });
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

/** Where an expert has several places, or copies, the tokens take turns with them. */
function counted(
  tokens: readonly (readonly number[])[],
  layer: Profile,
  place: RankPlacement,
  placement?: Placement,
): Hits {
  const of = placement ?? inOrder(placed(layer.experts, place.ranks), place.ranks);
  const places = placesByExpert(of);
  const copies = of.experts / layer.experts;
  const owners = tokens.map((ids, token) => {
    if (ids.length !== layer.topK)
      throw new ArgumentError(`loads[${token}]`, ids, `${layer.topK} experts: as many as a token takes`);
    const bad = ids.findIndex((id) => !(Number.isInteger(id) && id >= 0 && id < layer.experts));
    if (bad >= 0)
      throw new ArgumentError(
        `loads[${token}][${bad}]`,
        ids[bad],
        `an expert from 0 to ${layer.experts - 1}`,
      );
    const again = ids.findIndex((id, k) => ids.indexOf(id) < k);
    if (again >= 0)
      throw new ArgumentError(`loads[${token}][${again}]`, ids[again], 'an expert that the token names once');
    return ids.map((id) => {
      const mine = places[id + (token % copies) * layer.experts]!;
      return rankOfPlace(of, mine[token % mine.length]!);
    });
  });
  return independent(tallied(owners, place));
}

function weighted(weights: readonly number[], topK: number, of: Placement, { perNode }: RankPlacement): Hits {
  const places = placesByExpert(of);
  const groups = (size: number): Coin[][] => {
    const each = (of.places.length / of.ranks) * size;
    return Array.from({ length: of.ranks / size }, (_, group) => {
      const held = of.places.slice(group * each, (group + 1) * each).filter((expert) => expert >= 0);
      return [...new Set(held)].map((expert) => ({
        weight: weights[expert]!,
        share: held.filter((one) => one === expert).length / places[expert]!.length,
      }));
    });
  };
  const each = hitByWeight(
    weights.map((weight) => [{ weight, share: 1 }]),
    topK,
  );
  const routes = new Float64Array(of.ranks);
  for (const [place, expert] of of.places.entries())
    if (expert >= 0) routes[rankOfPlace(of, place)]! += each[expert]! / places[expert]!.length;
  return independent({
    routes,
    ranks: hitByWeight(groups(1), topK),
    nodes: hitByWeight(groups(perNode), topK),
  });
}

/** An expert in a group of places: its weight, and the share of its tokens that go there. */
interface Coin {
  readonly weight: number;
  readonly share: number;
}

/**
 * Draws without replacement, each in proportion to the weights that are left, are a race: expert i arrives at a time
 * that is exponential with rate w_i, and the first topK count. A group of experts is hit if its first arrival finds fewer
 * than topK others:
 *
 *     ∫ density of the first arrival · P(fewer than topK of the others by t) dt
 *
 * The others' number is a sum of independent coins, so its distribution is a product of small polynomials. An expert with
 * places in several groups is a coin in each, for its share of the tokens.
 */
function hitByWeight(groups: readonly (readonly Coin[])[], topK: number): Float64Array {
  const size = groups.length;
  const hit = new Float64Array(size);
  const own = groups.map(() => new Float64Array(topK));
  // before[g]: the distribution of the groups below g together. after[g]: that of the groups above, cumulated.
  const before = Array.from({ length: size + 1 }, () => new Float64Array(topK));
  const after = Array.from({ length: size + 1 }, () => new Float64Array(topK));
  const unit = raceLength(groups.flat(), topK);
  // An expert that comes that early is among the first topK in any case, but would come between two steps of the sum.
  const early = 1e4 / unit;
  const timed = groups.map((group) =>
    group.map(({ weight, share }): Coin => ({ weight: Math.min(weight, early), share })),
  );
  for (let y = -3.2; y < 12; y += quadratureStep) {
    // Doubly exponential at the start of the race, exponential after it: a plain sum converges to rounding.
    const t = unit * Math.exp(y - Math.exp(-y));
    const dt = t * (1 + Math.exp(-y)) * quadratureStep;
    const first = timed.map((group, g) => coins(group, t, own[g]!));
    before[0]!.fill(0)[0] = 1;
    for (let g = 0; g < size; g++) multiply(before[g]!, own[g]!, before[g + 1]!);
    if (before[size]!.every((p) => p < 1e-18)) break;
    after[size]!.fill(0)[0] = 1;
    for (let g = size; g > 0; g--) multiply(after[g]!, own[g - 1]!, after[g - 1]!);
    for (let g = 0; g < size; g++) {
      let few = 0;
      let cumulated = 0;
      for (let n = 0; n < topK; n++) {
        cumulated += after[g + 1]![n]!;
        few += before[g]![topK - 1 - n]! * cumulated;
      }
      hit[g]! += first[g]! * few * dt;
    }
  }
  const all = experts(groups.flat());
  return hit.map((p, g) => {
    const whole = experts(groups[g]!.filter(({ share }) => share === 1));
    // A token that cannot do without the group always hits it.
    return Math.round(all - whole) >= topK ? Math.min(1, p) : 1;
  });
}

/** So many experts that are ever chosen. */
const experts = (group: readonly Coin[]): number =>
  group.reduce((sum, { weight, share }) => (weight > 0 ? sum + share : sum), 0);

const quadratureStep = 0.1;

/** The time at which topK experts have come on average, in the race of exponential clocks. */
function raceLength(all: readonly Coin[], topK: number): number {
  const come = (t: number) =>
    all.reduce((sum, { weight, share }) => sum - share * Math.expm1(-weight * t), 0);
  let t = 1;
  const wanted = Math.min(topK, 0.9 * experts(all));
  while (come(t) < wanted) t *= 2;
  while (come(t) > wanted) t /= 2;
  return t;
}

/** The distribution of how many of the group have arrived by t, up to topK − 1. Returns how likely, a unit of time, the first arrives now. */
function coins(group: readonly Coin[], t: number, into: Float64Array): number {
  into.fill(0)[0] = 1;
  let rate = 0;
  for (const { weight, share } of group) {
    const later = Math.exp(-weight * t);
    const not = 1 - share + share * later;
    rate += share === 1 ? weight : (weight * share * later) / not;
    for (let n = into.length - 1; n > 0; n--) into[n] = into[n]! * not + into[n - 1]! * (1 - not);
    into[0]! *= not;
  }
  return rate * into[0]!;
}

function multiply(a: Float64Array, b: Float64Array, into: Float64Array): void {
  for (let n = 0; n < into.length; n++) {
    let sum = 0;
    for (let m = 0; m <= n; m++) sum += a[m]! * b[n - m]!;
    into[n] = sum;
  }
}

/** The weights with which every expert is chosen as often as was counted. */
function weightsFor(counts: readonly number[], experts: number, topK: number): Float64Array {
  if (counts.length !== experts)
    throw new ArgumentError('loads', counts, `as many as there are experts, ${experts}`);
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!(total > 0)) throw new ArgumentError('loads', counts, 'counts of which some are above 0');
  const wanted = counts.map((count) => (topK * count) / total);
  const most = wanted.findIndex((share) => share > 1 + 1e-9);
  if (most >= 0)
    throw new ArgumentError(`loads[${most}]`, counts[most], `at most ${total / topK}: a token names it once`);
  const weights = Float64Array.from(counts, (count) => count / total);
  for (let turn = 0; turn < 60; turn++) {
    const now = hitByWeight(
      Array.from(weights, (weight) => [{ weight, share: 1 }]),
      topK,
    );
    let off = 0;
    for (let i = 0; i < experts; i++) {
      if (wanted[i] === 0) continue;
      // Odds rather than shares: an expert that nearly every token names needs a weight far above the others'.
      const odds = (p: number) => p / Math.max(1e-6, 1 - p);
      off = Math.max(off, Math.abs(now[i]! - wanted[i]!));
      weights[i]! *= odds(wanted[i]!) / odds(now[i]!);
    }
    if (off < 1e-6) break;
  }
  return weights;
}
