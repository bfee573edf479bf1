import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { expertsOf, ownerOf, toF32 } from '../../../src/moe/layer/index.js';
import {
  makeAllRoutes,
  makeRoutes,
  type RouterLaw,
  random,
  randomBytes,
  randomElements,
} from '../../../src/verify/testing/index.js';

const v3 = { ranks: 8, experts: 256, topK: 8 };
const rows = <T>(array: ArrayLike<T>, length: number): T[][] =>
  Array.from({ length: array.length / length }, (_, i) =>
    Array.from(array).slice(i * length, (i + 1) * length),
  );
const histogram = (ids: Iterable<number>, experts: number): number[] => {
  const counts = new Array<number>(experts).fill(0);
  for (const id of ids) counts[id]!++;
  return counts;
};

describe('random', () => {
  it('is the same on every machine', () => {
    const draw = random(1, 2);
    expect([draw.bits(), draw.bits(), draw.bits()]).toEqual(golden);
  });

  it('differs by every seed, in every place', () => {
    const first = [[0], [1], [-1], [2 ** 32], [0, 0], [0, 1], [1, 0]].map((seeds) => random(...seeds).bits());
    expect(new Set(first).size).toBe(first.length);
  });

  it('is spread evenly', () => {
    const draw = random(5);
    const counts = histogram(
      Array.from({ length: 16_000 }, () => draw.below(16)),
      16,
    );
    for (const count of counts) expect(Math.abs(count - 1000)).toBeLessThan(150); // five deviations
  });
});

const routers: RouterLaw[] = [
  { kind: 'uniform' },
  { kind: 'balanced' },
  { kind: 'zipf', exponent: 1.2 },
  { kind: 'one-rank', target: 3 },
  { kind: 'remote' },
  { kind: 'repeated' },
];

describe.each(routers)('the $kind router', (router) => {
  it('gives the same routes for the same seed, others for another', () => {
    const routes = (seed: number) => makeRoutes(v3, 1, 16, seed, { router, holes: 0.2 });
    expect(routes(7)).toEqual(routes(7));
    expect(routes(8).topkIds).not.toEqual(routes(7).topkIds);
  });

  it('stays within the experts, for any shape', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 1, max: 30 }),
        fc.integer({ min: 1, max: 32 }),
        (ranks, experts, topK) => {
          const { topkIds } = makeRoutes({ ranks, experts, topK }, 0, 5, ranks * 7 + experts, { router });
          expect(topkIds).toHaveLength(5 * topK);
          for (const id of topkIds) expect(id).toBeGreaterThanOrEqual(-1);
          for (const id of topkIds) expect(id).toBeLessThan(experts);
        },
      ),
      { seed: 9, numRuns: 60 },
    );
  });

  it('normalises weights over the routes that are left after holes', () => {
    const { topkIds, topkWeights } = makeRoutes(v3, 0, 200, 3, { router, holes: 0.5 });
    const ids = rows(topkIds, 8);
    for (const [t, weights] of rows(topkWeights, 8).entries()) {
      const sum = weights.reduce((a, b) => a + b, 0);
      expect(sum).toBeCloseTo(ids[t]!.some((id) => id >= 0) ? 1 : 0, 6);
      for (const [k, weight] of weights.entries()) expect(weight > 0).toBe(ids[t]![k]! >= 0);
    }
    const holes = Array.from(topkIds).filter((id) => id === -1).length / topkIds.length;
    expect(holes).toBeGreaterThan(0.42);
    expect(holes).toBeLessThan(0.58);
  });
});

it.each([
  ['uniform', true],
  ['balanced', true],
  ['remote', true],
  ['repeated', false],
] as const)('%s routes of a token are distinct: %s', (kind, distinct) => {
  for (const ids of rows(makeRoutes(v3, 2, 300, 1, { router: { kind } }).topkIds, 8))
    expect(new Set(ids).size === 8).toBe(distinct);
});

it('zipf routes of a token are distinct, and favour the same experts on all ranks', () => {
  const all = makeAllRoutes(v3, 250, 4, { router: { kind: 'zipf', exponent: 1 } });
  const favourites = all.map(({ topkIds }) => {
    for (const ids of rows(topkIds, 8)) expect(new Set(ids).size).toBe(8);
    const counts = histogram(topkIds, 256);
    expect(Math.max(...counts)).toBeGreaterThan(5 * (counts.reduce((a, b) => a + b) / 256));
    return counts.indexOf(Math.max(...counts));
  });
  expect(new Set(favourites).size).toBe(1);
});

it.each([{ kind: 'uniform' }, { kind: 'zipf', exponent: 0 }] as const)(
  'routes by $kind use every expert about equally, where none is favoured',
  (router) => {
    const { topkIds } = makeRoutes(v3, 0, 1600, 4, { router });
    for (const count of histogram(topkIds, 256)) expect(Math.abs(count - 50)).toBeLessThan(36); // five deviations
  },
);

it('balanced routes load every expert and every rank the same, give or take one', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 8 }),
      fc.integer({ min: 1, max: 8 }),
      fc.integer({ min: 1, max: 40 }),
      fc.integer({ min: 1, max: 8 }),
      (ranks, perRank, tokens, topK) => {
        const shape = { ranks, experts: ranks * perRank, topK };
        const ids = makeAllRoutes(shape, tokens, 1, { router: { kind: 'balanced' } }).flatMap(({ topkIds }) =>
          Array.from(topkIds),
        );
        const experts = histogram(ids, shape.experts);
        expect(Math.max(...experts) - Math.min(...experts)).toBeLessThanOrEqual(1);
        const perOwner = histogram(
          ids.map((id) => ownerOf(shape, id)),
          ranks,
        );
        expect(Math.max(...perOwner) - Math.min(...perOwner)).toBeLessThanOrEqual(1);
      },
    ),
    { seed: 10, numRuns: 60 },
  );
});

it('balanced routes do so where groups of ranks hold the same tokens, and where ranks have different numbers', () => {
  const loads = (shape: Parameters<typeof makeAllRoutes>[0], tokens: number | readonly number[]) => {
    const all = makeAllRoutes(shape, tokens, 1, { router: { kind: 'balanced' } });
    const firsts = all.filter((_, rank) => rank % (shape.replicas ?? 1) === 0);
    return new Set(
      histogram(
        firsts.flatMap(({ topkIds }) => Array.from(topkIds)),
        shape.experts,
      ),
    );
  };
  expect(loads({ ranks: 4, experts: 32, topK: 8, replicas: 2 }, 2)).toEqual(new Set([1]));
  expect(loads({ ranks: 4, experts: 32, topK: 8 }, [4, 2, 0, 2])).toEqual(new Set([2]));
});

it('one-rank routes stay on that rank, repeating when it has too few experts', () => {
  const shape = { ranks: 8, experts: 32, topK: 6 };
  const { first, count } = expertsOf(shape, 5);
  for (const ids of rows(
    makeRoutes(shape, 0, 50, 1, { router: { kind: 'one-rank', target: 5 } }).topkIds,
    6,
  )) {
    expect(ids.every((id) => id >= first && id < first + count)).toBe(true);
    expect(new Set(ids).size).toBe(4);
  }
});

it('remote routes never stay at home, and are −1 where there is no other rank', () => {
  const { topkIds } = makeRoutes(v3, 6, 100, 1, { router: { kind: 'remote' } });
  expect(Array.from(topkIds).every((id) => ownerOf(v3, id) !== 6)).toBe(true);
  const alone = makeRoutes({ ranks: 1, experts: 4, topK: 2 }, 0, 1, 1, { router: { kind: 'remote' } });
  expect([...alone.topkIds]).toEqual([-1, -1]);
});

it('makes routes for ranks with different numbers of tokens', () => {
  const all = makeAllRoutes({ ranks: 3, experts: 6, topK: 2 }, [4, 0, 1], 1);
  expect(all.map(({ tokens }) => tokens)).toEqual([4, 0, 1]);
  expect(all.map(({ topkIds }) => topkIds.length)).toEqual([8, 0, 2]);
});

describe('random rows', () => {
  it.each(['f32', 'bf16', 'f16'] as const)('of %s are repeatable and look normal', (dtype) => {
    const bits = randomElements(dtype, 20_000, 3);
    expect(randomElements(dtype, 20_000, 3)).toEqual(bits);
    const values = toF32(dtype, bits);
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length);
    expect(Math.abs(mean)).toBeLessThan(0.05);
    expect(Math.abs(deviation - 1.155)).toBeLessThan(0.03);
    expect(values.every((value) => Math.abs(value) < 4)).toBe(true);
  });

  it('with spread have magnitudes far apart', () => {
    const values = toF32('bf16', randomElements('bf16', 1000, 3, 20))
      .map(Math.abs)
      .sort();
    expect(values[900]! / values[100]!).toBeGreaterThan(2 ** 12);
  });

  it('of bytes come in any length', () => {
    for (const length of [0, 1, 5, 4096]) expect(randomBytes(length, 1)).toHaveLength(length);
    expect(randomBytes(9, 1)).not.toEqual(randomBytes(9, 2));
  });
});

// Routes in stored results and in findings are named by their seed, so the generator may never change.
const golden = [3_869_526_614, 2_512_177_362, 3_850_531_355];
