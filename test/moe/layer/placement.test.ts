import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  lotCount,
  type Placement,
  placeTable,
  rankLoads,
  rebalance,
  stepsTo,
} from '../../../src/moe/layer/index.js';
import { makeAllRoutes, type RouterLaw } from '../../../src/verify/testing/index.js';

const sizes = fc
  .record({
    nodes: fc.integer({ min: 1, max: 3 }),
    ranksOfNode: fc.integer({ min: 1, max: 4 }),
    experts: fc.integer({ min: 1, max: 40 }),
    more: fc.integer({ min: 0, max: 3 }),
    seed: fc.integer({ min: 0, max: 2 ** 31 }),
  })
  .map(({ nodes, ranksOfNode, experts, more, seed }) => {
    const ranks = nodes * ranksOfNode;
    const places = (Math.ceil(experts / ranks) + more) * ranks;
    const counts = Array.from({ length: experts }, (_, e) => ((seed >>> (e % 24)) % 5) ** 4);
    return { nodes, ranks, experts, places, counts };
  });

const runs = { seed: 7, numRuns: 150 };

describe('rebalance', () => {
  it('gives every expert a place, every rank as many places, and no rank an expert twice', () => {
    fc.assert(
      fc.property(sizes, ({ nodes, ranks, experts, places, counts }) => {
        const placement = rebalance(counts, { ranks, places, nodes });
        expect(placement.places).toHaveLength(places);
        const room = places / ranks;
        for (let rank = 0; rank < ranks; rank++) {
          const own = placement.places.slice(rank * room, (rank + 1) * room).filter((e) => e >= 0);
          expect(new Set(own).size).toBe(own.length);
        }
        const live = placement.places.filter((e) => e >= 0);
        expect(new Set(live).size).toBe(experts);
        expect(live).toHaveLength(Math.min(places, experts * ranks));
        expect(rebalance(counts, { ranks, places, nodes })).toEqual(placement);
      }),
      runs,
    );
  });

  it('leaves no rank with more than the published greedy does, which may give a rank an expert twice', () => {
    fc.assert(
      fc.property(sizes, ({ ranks, experts, places, counts }) => {
        if (places > experts * ranks) return;
        const greedy = greedyBusiest(counts, ranks, places);
        if (greedy === null) return;
        const busiest = Math.max(...rankLoads(rebalance(counts, { ranks, places }), counts));
        expect(busiest).toBeLessThanOrEqual(greedy * 1.0011 + 1e-9);
      }),
      runs,
    );
  });

  // docs/placement.md has this table: the busiest of 8 ranks, in parts of the mean.
  it.each<[string, RouterLaw, number]>([
    ['Zipf 0.5', { kind: 'zipf', exponent: 0.5 }, 1.4],
    ['Zipf 1.0', { kind: 'zipf', exponent: 1 }, 2.11],
    ['Zipf 2.0', { kind: 'zipf', exponent: 2 }, 2.75],
    ['all to one rank', { kind: 'one-rank', target: 3 }, 8],
  ])('evens out the routes that come after those that were counted: %s', (_, router, plain) => {
    const routes = makeAllRoutes({ ranks: 8, experts: 256, topK: 8 }, 1024, 5, { router });
    const counts = new Array<number>(256).fill(0);
    for (const { topkIds } of routes) for (const id of topkIds.subarray(0, 512 * 8)) counts[id]!++;
    const later = routes.map(({ topkIds }) => topkIds.subarray(512 * 8));
    const even: Placement = { experts: 256, ranks: 8, places: Array.from({ length: 256 }, (_, e) => e) };
    expect(busiestOf(even, later)).toBeCloseTo(plain, 1);
    expect(busiestOf(rebalance(counts, { ranks: 8, places: 288 }), later)).toBeLessThan(1.05);
    expect(busiestOf(rebalance(counts, { ranks: 8, places: 288, nodes: 2 }), later)).toBeLessThan(1.05);
  });
});

/** The most routes that a rank gets, in parts of the mean. */
function busiestOf(placement: Placement, routes: readonly Int32Array[]): number {
  const loads = new Array<number>(8).fill(0);
  for (const [source, ids] of routes.entries()) {
    const table = placeTable(placement, { source, sources: 8 });
    for (const [route, id] of ids.entries()) {
      const place = table[id * lotCount + (Math.floor(route / 8) % lotCount)]!;
      loads[Math.floor((place * 8) / placement.places.length)]!++;
    }
  }
  return (Math.max(...loads) * 8) / loads.reduce((a, b) => a + b);
}

/** Replicas one by one to the busiest expert; then, the busiest first, to the rank with the least load and room left. */
function greedyBusiest(counts: readonly number[], ranks: number, places: number): number | null {
  const of = counts.map(() => 1);
  for (let n = counts.length; n < places; n++) {
    const each = counts.map((count, e) => count / of[e]!);
    of[each.indexOf(Math.max(...each))]!++;
  }
  const loads = new Array<number>(ranks).fill(0);
  const held = loads.map((): number[] => []);
  const replicas = of.flatMap((count, e) => new Array<[number, number]>(count).fill([counts[e]! / count, e]));
  for (const [load, expert] of replicas.sort(([a], [b]) => b - a)) {
    const free = [...loads.keys()].filter((rank) => held[rank]!.length < places / ranks);
    const rank = free.reduce((a, b) => (loads[b]! < loads[a]! ? b : a));
    loads[rank]! += load;
    held[rank]!.push(expert);
  }
  const twice = held.some((experts) => new Set(experts).size < experts.length);
  return twice ? null : Math.max(...loads);
}

describe('which place a token goes to', () => {
  it('is one of its expert’s, each with an equal part of all lots', () => {
    fc.assert(
      fc.property(sizes, ({ nodes, ranks, places, counts }) => {
        const placement = rebalance(counts, { ranks, places, nodes });
        const got = new Array<number>(places).fill(0);
        const strangers: number[] = [];
        for (let source = 0; source < ranks; source++) {
          for (const [at, place] of placeTable(placement, { source, sources: ranks, nodes }).entries()) {
            if (placement.places[place] !== Math.floor(at / lotCount)) strangers.push(place);
            got[place]!++;
          }
        }
        expect(strangers).toEqual([]);
        const uneven = placement.places.filter((expert, place) => {
          const even = (ranks * lotCount) / placement.places.filter((e) => e === expert).length;
          return expert >= 0 && Math.abs(got[place]! - even) >= 1;
        });
        expect(uneven).toEqual([]);
      }),
      { ...runs, numRuns: 60 },
    );
  });

  it('is its own rank’s where that has the expert, then its node’s', () => {
    const placement: Placement = { experts: 2, ranks: 4, places: [0, 1, 1, 0] };
    const from = (source: number) => [...placeTable(placement, { source, sources: 4, nodes: 2 })];
    expect(from(0).slice(0, lotCount)).toEqual(new Array(lotCount).fill(0));
    expect(from(0).slice(lotCount)).toEqual(new Array(lotCount).fill(1));
    expect(from(3).slice(lotCount)).toEqual(new Array(lotCount).fill(2));
  });

  it('spreads the first tokens of all sources too', () => {
    const placement: Placement = { experts: 1, ranks: 8, places: [0, -1, -1, -1, -1, 0, -1, -1] };
    const at = (source: number) => placeTable(placement, { source, sources: 8 })[0];
    const first = [1, 2, 3, 4, 6, 7].map(at);
    expect(first.filter((place) => place === 0)).toHaveLength(3);
    expect([0, 5].map(at)).toEqual([0, 5]);
  });

  it('is nowhere for an expert that lives nowhere', () => {
    const placement: Placement = { experts: 2, ranks: 1, places: [1, -1] };
    const table = placeTable(placement, { source: 0, sources: 1 });
    expect([table[0], table[lotCount]]).toEqual([-1, 0]);
  });
});

describe('the steps from one placement to another', () => {
  const placements = fc
    .record({
      ranks: fc.integer({ min: 1, max: 4 }),
      experts: fc.integer({ min: 1, max: 12 }),
      more: fc.integer({ min: 0, max: 2 }),
    })
    .chain(({ ranks, experts, more }) => {
      const room = Math.ceil(experts / ranks) + more;
      // Every expert once, the rest of the places as they come.
      const places = fc
        .array(fc.integer({ min: -1, max: experts - 1 }), {
          minLength: ranks * room - experts,
          maxLength: ranks * room - experts,
        })
        .chain((rest) => {
          const all = [...Array(experts).keys(), ...rest];
          return fc
            .shuffledSubarray([...all.keys()], { minLength: all.length })
            .map((at) => at.map((i) => all[i]!));
        })
        .map((places): Placement => ({ experts, ranks, places }));
      return fc.tuple(places, places);
    });

  it('fill only empty places, from places where the expert lives, and leave no expert without one', () => {
    let detours = 0;
    fc.assert(
      fc.property(placements, ([now, next]) => {
        const full = !now.places.includes(-1) && new Set(now.places).size === now.places.length;
        const same = now.places.every((expert, place) => expert === next.places[place]);
        if (full && !same) {
          expect(() => stepsTo(next, now)).toThrow('one with a place to spare');
          return;
        }
        const steps = stepsTo(next, now);
        expect(steps.length).toBeLessThanOrEqual(2 * now.places.length);
        let at = now;
        for (const { emptied, filled } of steps) {
          for (const [place, expert] of emptied.places.entries()) {
            if (expert !== -1) expect(expert).toBe(at.places[place]);
            const comes = filled.places[place]!;
            if (expert !== -1) expect(comes).toBe(expert);
            else if (comes !== -1) expect(emptied.places).toContain(comes);
            if (comes !== next.places[place] && comes !== at.places[place]) detours++;
          }
          expect(new Set(emptied.places.filter((expert) => expert >= 0)).size).toBe(now.experts);
          expect(filled).not.toEqual(at);
          at = filled;
        }
        expect(at).toEqual(next);
      }),
      { seed: 5, numRuns: 400 },
    );
    expect(detours).toBeGreaterThan(5);
  });

  it('are one where every expert that must leave lives elsewhere too', () => {
    const now: Placement = { experts: 4, ranks: 2, places: [0, 1, 2, 2, 3, 0] };
    expect(stepsTo({ ...now, places: [3, 1, 2, 0, 3, 0] }, now)).toHaveLength(1);
    expect(stepsTo(now, now)).toEqual([]);
  });

  it('refuse an expert that lives nowhere', () => {
    const now: Placement = { experts: 3, ranks: 1, places: [0, 1, -1] };
    expect(() => stepsTo({ ...now, places: [0, 1, 2] }, now)).toThrow(
      'placement.places[2] is 2; it must be an expert',
    );
  });
});
