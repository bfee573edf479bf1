import { describe, expect, it } from 'vitest';
import { readBits } from '../../../src/moe/index.js';
import { placedRoutes, traffic } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import { createNoise, setsFor, tensorsOf } from '../../../src/tools/bench/inputs.js';
import { rowsBetween } from '../../../src/tools/bench/nccl.js';
import { roundsFor } from '../../../src/tools/bench/program.js';
import { rowsOf } from '../../../src/tools/bench/rows.js';
import { spread } from '../../../src/tools/bench/statistics.js';
import { Crew, createTiming } from '../../../src/tools/bench/timing.js';
import {
  busiestLoad,
  placementByCounts,
  roundBytes,
  routeSets,
  shapeOf,
  sweep,
  type WorkloadOptions,
  workload,
} from '../../../src/tools/bench/workload.js';

const options: WorkloadOptions = {
  profile: 'deepseek_v3',
  ranks: 4,
  dtype: 'bf16',
  combineDtype: 'bf16',
  router: 'uniform',
  seed: 3,
};

describe('a workload', () => {
  it('takes a profile, and single numbers of it from the options', () => {
    expect(workload({ ...options, experts: 64 })).toMatchObject({ hidden: 7168, experts: 64, topK: 8 });
    expect(() => workload({ ...options, profile: 'custom', hidden: 64, experts: 8 })).toThrow(/topK/);
  });

  it('refuses what it does not know', () => {
    expect(() => workload({ ...options, profile: 'nobody' })).toThrow(/profile is "nobody"/);
    expect(() => workload({ ...options, replicas: 99 })).toThrow(/replicas is 99/);
  });

  it('carries the scales of block-scaled formats as a payload of their own', () => {
    expect(workload({ ...options, dtype: 'fp8' }).payloads).toEqual([
      { name: 'x', rowBytes: 7168 },
      { name: 'scales', rowBytes: 224 },
    ]);
  });

  it('gives every input set routes of its own, the same wherever they are made', () => {
    const of = workload(options);
    const [first, second] = routeSets(of, 16, 2);
    expect(first![2]!.topkIds).not.toEqual(second![2]!.topkIds);
    expect(routeSets(of, 16, 2)).toEqual([first, second]);
  });

  it('gives every expert the same load with the perfect router, and not without', () => {
    const loads = (router: WorkloadOptions['router']) => {
      const of = workload({ ...options, router, skew: 1.2 });
      const counts = new Array<number>(of.experts).fill(0);
      for (const { topkIds } of routeSets(of, 128, 1)[0]!) for (const id of topkIds) counts[id]!++;
      return Math.max(...counts) / Math.min(...counts);
    };
    expect(loads('perfect')).toBe(1);
    expect(loads('uniform')).toBeGreaterThan(1.5);
    expect(loads('skewed')).toBeGreaterThan(loads('uniform'));
  });
});

describe('placements of skewed routes', () => {
  const of = workload({ ...options, ranks: 8, router: 'skewed', skew: 1 });
  const sets = routeSets(of, 1024, 2);

  it('suit all input sets, for their routes have the same favourites', () => {
    const favourites = sets.map((routes) => {
      const counts = new Array<number>(of.experts).fill(0);
      for (const { topkIds } of routes) for (const id of topkIds) counts[id]!++;
      return counts.indexOf(Math.max(...counts));
    });
    expect(favourites[1]).toBe(favourites[0]);
  });

  // docs/results/2026-11-23-sim-places.md has such figures for other seeds and sizes.
  it('with 12 % more places leave the busiest of 8 ranks at most 1.1 times the mean of Zipf 1.0', () => {
    expect(busiestLoad(of, sets)).toBeGreaterThan(1.4);
    const placement = placementByCounts(of, 288, 1);
    const placed = sets.map((routes) => placedRoutes({ ...of, maxTokens: 1024 }, routes, placement));
    expect(busiestLoad({ ...of, experts: 288 }, placed)).toBeLessThan(1.1);
  });

  it('count the routes of a group of ranks once', () => {
    const one = { tokens: 1, topkIds: Int32Array.of(0, 1), topkWeights: Float32Array.of(1, 1) };
    const other = { ...one, topkIds: Int32Array.of(0, 2) };
    const shape = { ranks: 4, experts: 4, replicas: 2 };
    expect(busiestLoad(shape, [[one, one, other, other]])).toBe(2);
  });
});

describe('bytes of a round', () => {
  const of = workload({ ...options, dtype: 'fp8' });
  const sets = routeSets(of, 32, 3);
  const bytes = roundBytes(of, 32, sets);
  const rounds = sets.map((routes) => traffic(shapeOf(of, 32), routes));
  const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;

  it('are those of traffic(), per rank, averaged over the input sets', () => {
    expect(bytes.dispatch.physical).toBeCloseTo(mean(rounds.map(({ remote }) => remote.dispatch)) / 4, 6);
    expect(bytes.combine.physical).toBeCloseTo(mean(rounds.map(({ remote }) => remote.combine)) / 4, 6);
    expect(bytes.rows).toBeCloseTo(mean(rounds.map(({ rows }) => rows)) / 4, 9);
  });

  it('count a row for every route where they are logical', () => {
    expect(bytes.dispatch.logical).toBe(32 * 8 * (7168 + 224));
    expect(bytes.combine.logical).toBe(32 * 8 * 7168 * 2);
    const logical = (bytes.dispatch.logical + bytes.combine.logical) * 4;
    expect(logical).toBe(mean(rounds.map(({ withoutDedup }) => withoutDedup)));
  });

  it('of the busiest rank are at least the mean, and all of it where one rank gets everything', () => {
    expect(bytes.dispatch.busiest).toBeGreaterThanOrEqual(bytes.dispatch.physical);
    const one = workload({ ...options, profile: 'custom', hidden: 64, experts: 1, topK: 1 });
    const all = roundBytes(one, 4, routeSets(one, 4, 1));
    expect(all.dispatch.physical).toBe((3 * 4 * 128) / 4);
    expect(all.dispatch.busiest).toBe(3 * 4 * 128);
  });

  it('are what NCCL’s sparse exchange sends', () => {
    const between = rowsBetween(of, sets[0]!);
    const remote = between.flatMap((row, source) => row.filter((_, to) => to !== source));
    expect(remote.reduce((a, b) => a + b, 0)).toBe(rounds[0]!.remote.rows);
  });
});

describe('the rows of a point', () => {
  const bytes = {
    dispatch: { physical: 1000, logical: 4000, busiest: 1100 },
    combine: { physical: 2000, logical: 8000, busiest: 2200 },
  };
  const times = new Map(
    Object.entries({
      'heddle/dispatch': [10],
      'heddle/both': [30],
      'stores/dispatch': [5],
      'stores/combine': [10],
      'nccl sparse/both': [60],
    }).map(([name, values]) => [name, spread(values)]),
  );

  it('derive combine, and say so', () => {
    const combine = rowsOf(times, bytes).find((row) => row.subject === 'heddle' && row.phase === 'combine')!;
    expect(combine).toMatchObject({ time: 20, spread: null, derived: 'both − dispatch', physical: 0.1 });
  });

  it('hold time against the ceiling of the busiest rank’s bytes and against NCCL', () => {
    const rows = rowsOf(times, bytes);
    const both = rows.find((row) => row.subject === 'heddle' && row.phase === 'both')!;
    expect(both).toMatchObject({ physical: 0.1, logical: 0.4, ofCeiling: 0.5, overNccl: 2 });
    const stores = rows.find((row) => row.subject === 'stores' && row.phase === 'both')!;
    expect(stores).toMatchObject({ time: 15, physical: 3300 / 15 / 1000, ofCeiling: null, logical: null });
  });

  it('of a simulated run have no bandwidths', () => {
    const [dispatch] = rowsOf(times, bytes, false);
    expect(dispatch).toMatchObject({ time: 10, physical: null, logical: null, ofCeiling: null });
  });
});

describe('how much a measurement repeats', () => {
  it('sweeps by a factor, always forward', () => {
    expect(sweep(1, 4096, 2)).toHaveLength(13);
    expect(sweep(1, 10, 3)).toEqual([1, 3, 9]);
    expect(sweep(1, 4, 1.1)).toEqual([1, 2, 3, 4]);
    expect(() => sweep(8, 4, 2)).toThrow(/end is 4/);
  });

  it('puts many short rounds or few long ones into a graph', () => {
    const round = (busiest: number, nodes = 1) => {
      const phase = { physical: busiest, logical: busiest, busiest };
      return roundsFor({ dispatch: phase, combine: phase }, nodes);
    };
    expect([round(0), round(5e6), round(160e6)]).toEqual([100, 55, 8]);
    expect([round(2e6, 2), round(160e6, 2)]).toEqual([4, 2]);
  });

  it('rotates inputs until they exceed L2 several times, or differ in every round', () => {
    expect(setsFor(100, 14_336, 50e6)).toBe(100);
    expect(setsFor(100, 30e6, 50e6)).toBe(6);
    expect(setsFor(8, 0, 0)).toBe(1);
  });
});

it('the rows that a rank brings to a layer are its own: equal ones would all choose the same experts', async () => {
  const crew = new Crew();
  const [first, second] = await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const timing = await createTiming(world, crew, 1);
    const tensors = tensorsOf({ timing, noise: createNoise(world.device, timing.stream, 1) }, 1);
    const [own, shared] = [tensors.rows([2, 64]), tensors.filled('bf16', [2, 64])];
    return [await readBits(own, timing.stream), await readBits(shared, timing.stream)] as const;
  });
  expect(first![0]).not.toEqual(second![0]);
  expect(first![1]).toEqual(second![1]);
});
