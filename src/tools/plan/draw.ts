/** Routes drawn as a law says: what the closed form has as expectations (routing.ts), token by token. */

import { firstOf, type Profile } from '../../moe/layer/index.js';
import { makeAllRoutes, type Random, type RouterLaw, random } from '../../verify/testing/index.js';
import { nodesOf, placed, type RankPlacement, type RoutingLaw, weightsFor } from './routing.js';

/** [source][token]: its experts. The ranks of a group bring the same. */
export function drawRoutes(
  layer: Profile,
  place: RankPlacement,
  law: RoutingLaw,
  of: { readonly tokens: number; readonly replicas: number; readonly seed: number },
): readonly (readonly ArrayLike<number>[])[] {
  const { ranks } = place;
  const { topK } = layer;
  const { tokens, replicas, seed } = of;
  const experts = placed(layer.experts, ranks);
  const router = routerOf(law);
  if (router !== null) {
    const shape = { ranks, experts, topK, replicas };
    return makeAllRoutes(shape, tokens, seed, { router }).map(({ topkIds }) =>
      Array.from({ length: tokens }, (_, token) => topkIds.subarray(token * topK, (token + 1) * topK)),
    );
  }
  const choose = chooser(layer, place, law, experts);
  const ofGroup = (first: number): ArrayLike<number>[] => {
    const draw = random(seed, first);
    return Array.from({ length: tokens }, () => choose(draw));
  };
  const drawn = Array.from({ length: ranks / replicas }, (_, group) => ofGroup(group * replicas));
  return Array.from({ length: ranks }, (_, rank) => drawn[firstOf({ replicas }, rank) / replicas]!);
}

/** The laws that the benchmark draws from, too. */
function routerOf(law: RoutingLaw): RouterLaw | null {
  if (law.kind === 'perfect') return { kind: 'balanced' };
  if (law.kind === 'skewed') return { kind: 'zipf', exponent: law.exponent };
  return law.kind === 'uniform' && law.nodesAtMost === undefined ? { kind: 'uniform' } : null;
}

function chooser(
  layer: Profile,
  place: RankPlacement,
  law: RoutingLaw,
  experts: number,
): (draw: Random) => ArrayLike<number> {
  const { topK } = layer;
  const copies = experts / layer.experts;
  switch (law.kind) {
    case 'routes':
      return (draw) => {
        const token = draw.below(law.tokens.length);
        return law.tokens[token]!.map((id) => id + (token % copies) * layer.experts);
      };
    case 'counts': {
      const weights = weightsFor(law.counts, layer.experts, topK);
      // A race: who is chosen in proportion to a weight arrives at an exponential time of that rate.
      const times = new Float64Array(experts);
      return (draw) => {
        for (let id = 0; id < experts; id++)
          times[id] = -Math.log(1 - draw.uniform()) / weights[id % weights.length]!;
        return firsts(times, topK);
      };
    }
    default: {
      const nodes = nodesOf(place);
      const most = law.kind === 'uniform' ? (law.nodesAtMost ?? nodes) : nodes;
      const each = experts / nodes;
      return (draw) => {
        const open = distinct(draw, nodes, Math.min(most, nodes));
        return distinct(draw, open.length * each, topK).map(
          (i) => open[Math.floor(i / each)]! * each + (i % each),
        );
      };
    }
  }
}

/** The indices of the `wanted` smallest times, in no order. */
function firsts(times: Float64Array, wanted: number): number[] {
  const last = Float64Array.from(times).sort()[wanted - 1]!;
  return [...times.keys()].filter((i) => times[i]! <= last).slice(0, wanted);
}

/** So many of 0 … n − 1, each once. */
function distinct(draw: Random, n: number, wanted: number): number[] {
  const found = new Set<number>();
  while (found.size < wanted) found.add(draw.below(n));
  return [...found];
}
