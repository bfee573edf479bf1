/** Experts in places: what a placement brings on skewed routes, beside what the benchmark counts and what tokens do that are drawn. */

import { describe, expect, it } from 'vitest';
import { planText } from '../../../src/cli/print-plan.js';
import {
  type Placement,
  placedRoutes,
  placesByExpert,
  profile,
  rankOfPlace,
} from '../../../src/moe/layer/index.js';
import * as bench from '../../../src/tools/bench/workload.js';
import {
  busiestOf,
  candidates,
  hits,
  machineNamed,
  placementFor,
  placeOn,
  plan,
  type Question,
  type RoutingLaw,
} from '../../../src/tools/plan/index.js';
import { makeAllRoutes } from '../../../src/verify/testing/index.js';

const layer = profile('deepseek_v3');
const zipf = (exponent: number): RoutingLaw => ({ kind: 'skewed', exponent, seed: 1 });

describe('the load of the busiest rank', () => {
  it.each([
    [0.5, 256],
    [1, 256],
    [1, 288],
    [2, 288],
  ])('is what heddle bench --skew %d --places %d counts', (exponent, places) => {
    const place = { ranks: 8, perNode: 8 };
    const of = bench.workload({
      ...{ profile: 'deepseek_v3', ranks: 8, dtype: 'fp8', combineDtype: 'bf16' },
      ...{ router: 'skewed', skew: exponent, seed: 1 },
    });
    const routes = bench.routeSets(of, 2048, 1);
    const law = zipf(exponent);
    const inOrder = busiestOf(hits(layer, place, law));
    // A rank gets 16,384 routes or more: chance is under 1 %.
    expect(Math.abs(inOrder / bench.busiestLoad(of, routes) - 1)).toBeLessThan(0.03);
    expect(inOrder).toBeGreaterThan(1.2);
    const placement = placementFor(layer, place, law, places);
    const placed = routes.map((set) => placedRoutes(bench.shapeOf(of, 2048), set, placement));
    const counted = bench.busiestLoad({ ...of, experts: places }, placed);
    expect(Math.abs(busiestOf(hits(layer, place, law, placement)) / counted - 1)).toBeLessThan(0.03);
    expect(counted).toBeLessThan(1.04);
  });

  it('stays where an expert gets more than its places can take: one of 32 ranks', () => {
    const place = { ranks: 32, perNode: 8 };
    const at = (places: number) =>
      busiestOf(hits(layer, place, zipf(1), placementFor(layer, place, zipf(1), places)));
    expect(at(256)).toBeGreaterThan(3);
    expect(at(288)).toBeLessThan(1.02);
  });
});

it('rows to ranks and nodes are those of tokens that are drawn and take turns with the places', () => {
  const place = { ranks: 16, perNode: 8 };
  const law = zipf(1.2);
  const placement = placementFor(layer, place, law, 288);
  const found = hits(layer, place, law, placement);
  const places = placesByExpert(placement);
  const [tokens, to] = [2000, { ranks: new Array<number>(16).fill(0), nodes: [0, 0] }];
  const shape = { experts: 256, topK: 8, ranks: 16 };
  const drawn = makeAllRoutes(shape, tokens, 1, { router: { kind: 'zipf', exponent: 1.2, favourites: 1 } });
  // Each expert's tokens take turns, so that a place's part does not depend on where others of a token go.
  const next = new Array<number>(256).fill(0);
  for (const { topkIds } of drawn) {
    for (let token = 0; token < tokens; token++) {
      const ranks = Array.from(topkIds.subarray(8 * token, 8 * token + 8), (id) => {
        const mine = places[id]!;
        return rankOfPlace(placement, mine[next[id]!++ % mine.length]!);
      });
      for (const rank of new Set(ranks)) to.ranks[rank]!++;
      for (const node of new Set(ranks.map((rank) => rank >> 3))) to.nodes[node]!++;
    }
  }
  // 32,000 draws: five standard errors are at most 0.014.
  for (const [rank, n] of to.ranks.entries())
    expect(Math.abs(n / (16 * tokens) - found.ranks[rank]!)).toBeLessThan(0.014);
  for (const [node, n] of to.nodes.entries())
    expect(Math.abs(n / (16 * tokens) - found.nodes[node]!)).toBeLessThan(0.014);
  expect(found.routes.reduce((sum, one) => sum + one, 0)).toBeCloseTo(8, 6);
});

it('measured routes go to the places of their experts, by turns', () => {
  const law: RoutingLaw = {
    kind: 'routes',
    tokens: [
      [0, 1],
      [0, 2],
      [0, 3],
      [0, 1],
    ],
  };
  const placement: Placement = { experts: 4, ranks: 4, places: [0, -1, 0, 1, 2, -1, 3, -1] };
  const found = hits({ hidden: 1, experts: 4, topK: 2 }, { ranks: 4, perNode: 2 }, law, placement);
  // Expert 0 lives on ranks 0 and 1, 1 on 1, 2 on 2, 3 on 3.
  expect([...found.routes]).toEqual([0.5, 1, 0.25, 0.25]);
  expect([...found.ranks]).toEqual([0.5, 0.75, 0.25, 0.25]);
  expect([...found.nodes]).toEqual([1, 0.5]);
});

describe('a plan with places', () => {
  const machine = machineNamed('h200-cx7');
  const place = placeOn(machine, 32);
  const question = (law: RoutingLaw, places?: number): Question => ({
    ...{ model: 'deepseek_v3', layer, machine, place, law, tokens: [128], replicas: 1 },
    ...{ dtype: 'fp8', combineDtype: 'bf16' },
    ...(places === undefined ? {} : { placement: placementFor(layer, place, law, places) }),
  });
  const asked = candidates(machine, place).filter(({ name }) => name === 'hybrid');
  const of = (...about: Parameters<typeof question>) => plan(question(...about), asked)[0]!.time;

  it('takes less than experts in order, no less than even routes, and the text says both loads', () => {
    const [inOrder, placed, even] = [of(zipf(1)), of(zipf(1), 288), of({ kind: 'uniform' })];
    expect(placed).toBeLessThan(0.9 * inOrder);
    expect(placed).toBeGreaterThan(even);
    const now = question(zipf(1), 288);
    const text = planText(now, plan(now, asked));
    expect(text).toMatch(
      /busiest rank gets 1\.\d\d × the mean of routes with experts in 288 places, 4\.\d\d × .*in order/,
    );
  });

  it.each([
    [zipf(1), 290, /places is 290; it must be a multiple of the 32 ranks/],
    [zipf(1), 128, /places is 128; it must be at least 256/],
    [
      { kind: 'uniform' } as const,
      288,
      /places is 288; it must be given with skewed loads: add --skew or --loads/,
    ],
  ])('refuses %o in %d places', (law, places, message) => {
    expect(() => placementFor(layer, place, law, places)).toThrow(message);
  });

  it('refuses more ranks than a placement may have', () => {
    expect(() => placementFor(layer, { ranks: 128, perNode: 8 }, zipf(1), 384)).toThrow(
      /ep is 128.* at most 72/,
    );
  });
});
