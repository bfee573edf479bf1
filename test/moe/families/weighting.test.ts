/** Router weights applied by combine: whole rounds on the simulated machine against the reference, bit by bit. */
import { describe, expect, test } from 'vitest';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  readBits,
  row,
  write,
} from '../../../src/moe/index.js';
import type { Source } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import type { RoundsShape, RoutesOptions } from '../../../src/verify/testing/index.js';
import { expectReference, type RoundsUnderTest } from './rounds.js';

const plain: RoundsShape = {
  ranks: 3,
  experts: 12,
  topK: 4,
  maxTokens: 3,
  hidden: 24,
  dtype: 'bf16',
  weighting: 'combine',
};

/** Weights that products and sums treat in special ways stand among the ordinary ones. */
function withSpecialWeights(sources: readonly Source[]): Source[] {
  const special = [0, -0, -1, 1e-40, -3.5, 3e38];
  return sources.map((source, rank) => ({
    ...source,
    topkWeights: source.topkWeights!.map((weight, i) =>
      i % 3 === 0 ? special[(i / 3 + rank) % 6]! : weight,
    ),
  }));
}

const run = (layer: Partial<RoundsShape>, options: RoundsUnderTest = {}) =>
  expectReference({ ...plain, ...layer }, options, withSpecialWeights);

const launch = { way: 'store', blocks: 2, threads: 64, parts: 2, inFlight: 4, teams: 1 } as const;
const spread = (way: 'push' | 'pull') => ({ dispatch: launch, combine: { ...launch, way, ahead: 1 } });

describe('weights applied by combine give the bits of the reference', () => {
  const layers: Readonly<Record<string, Partial<RoundsShape>>> = {
    bf16: {},
    f16: { dtype: 'f16' },
    f32: { dtype: 'f32' },
    'one rank, which holds every expert': { ranks: 1 },
    'top 1': { topK: 1 },
    'top 13 of 26': { experts: 26, topK: 13, ranks: 2 },
    'top 32 of one rank': { experts: 40, topK: 32, ranks: 1, maxTokens: 2 },
    'rows of no whole vector': { hidden: 7 },
    'odd rows of f32': { hidden: 5, dtype: 'f32' },
    'fewer experts than ranks': { ranks: 4, experts: 3, topK: 2 },
    'rows of several passes': { hidden: 600, ranks: 2 },
  };
  for (const [name, layer] of Object.entries(layers)) test(name, () => run(layer));

  const routes: Readonly<Record<string, RoutesOptions>> = {
    'routes to nobody': { holes: 0.5 },
    'repeated experts': { router: { kind: 'repeated' } },
    'all routes to one rank': { router: { kind: 'one-rank', target: 1 } },
    'all routes remote': { router: { kind: 'remote' } },
  };
  for (const [name, of] of Object.entries(routes)) test(name, () => run({}, { routes: of }));

  const tokens = [
    [3, 0, 1],
    [0, 0, 0],
    [1, 3, 2],
  ];
  for (const way of ['push', 'pull'] as const) {
    test(`${way}: rows in parts, uneven tokens, checked`, () =>
      run({ hidden: 40 }, { tokens, tuning: spread(way), mode: 'checked' }));
    test(`${way}: a graph, replayed, checked`, () =>
      run({}, { graph: true, counts: true, tuning: spread(way), mode: 'checked' }));
  }
});

describe('rows of a plan that combine takes give the bits of the reference', () => {
  const planned: Partial<RoundsShape> = { weighting: 'plan' };
  const layers: Readonly<Record<string, Partial<RoundsShape>>> = {
    bf16: {},
    f32: { dtype: 'f32' },
    'one rank, which holds every expert': { ranks: 1 },
    'top 1': { topK: 1 },
    'top 13 of 26': { experts: 26, topK: 13, ranks: 2 },
    'rows of no whole vector': { hidden: 7 },
    'fewer experts than ranks': { ranks: 4, experts: 3, topK: 2 },
    e4m3: { wire: 'e4m3', hidden: 144 },
    'sums added': { adds: true },
  };
  for (const [name, layer] of Object.entries(layers)) test(name, () => run({ ...planned, ...layer }));

  const routes: Readonly<Record<string, RoutesOptions>> = {
    'routes to nobody': { holes: 0.5 },
    'repeated experts': { router: { kind: 'repeated' } },
    'all routes to one rank': { router: { kind: 'one-rank', target: 1 } },
    'all routes remote': { router: { kind: 'remote' } },
  };
  for (const [name, of] of Object.entries(routes)) test(name, () => run(planned, { routes: of }));

  test('groups of 2', () => expectReference({ ...plain, ...planned, ranks: 4, replicas: 2, maxTokens: 4 }));

  const forms: Readonly<Record<string, RoundsUnderTest>> = {
    'a graph': { graph: true, counts: true },
    'split phases': { split: true },
    'two rounds in flight': { split: true, rounds: 2 },
    portable: { family: 'portable' },
    'portable over a proxy': { family: 'portable', transport: 'proxy' },
    'hybrid, two nodes': { family: 'hybrid', nodes: 2 },
  };
  for (const [name, form] of Object.entries(forms))
    test(`${name}, checked`, () => run({ ...planned, ranks: 4 }, { ...form, mode: 'checked' }));

  const tokens = [
    [3, 0, 1],
    [0, 0, 0],
    [1, 3, 2],
  ];
  for (const way of ['push', 'pull'] as const)
    test(`${way}: rows in parts, uneven tokens, checked`, () =>
      run({ ...planned, hidden: 40 }, { tokens, tuning: spread(way), mode: 'checked' }));
});

const options: ExpertParallelOptions = {
  experts: 4,
  topK: 3,
  maxTokens: 2,
  payloads: { x: row('bf16', 8) },
  output: row('f32', 4),
  weighting: 'combine',
};

const alone = <T>(program: (world: World) => Promise<T>): Promise<T[]> =>
  World.local({ ranks: 1, device: 'sim' }, program);

describe('an ExpertParallel whose combine applies the weights', () => {
  test('has an output with a row for each route, of which it reads those with an expert', async () => {
    await alone(async (world) => {
      const ep = await ExpertParallel.create(world, options);
      const stream = world.device.createStream();
      const out = emptyTensor(world.device, 'f32', [1, 4]);
      const received = ep.dispatch(
        {
          topkIds: Int32Array.of(2, -1, 0),
          topkWeights: Float32Array.of(0.5, 100, -2),
          payloads: { x: new Uint8Array(16) },
        },
        stream,
      );
      expect(received.output.shape).toEqual([1, 2, 3, 4]);
      const rows = new Float32Array(2 * 3 * 4).fill(Number.NaN);
      rows.set([2, 4, 6, 8], 0);
      rows.set([1, 1, 1, -0.25], 8);
      write(received.output, stream, rows);
      ep.combine(out, stream);
      await ep.synchronize(stream);
      expect(await readBits(out, stream)).toEqual(Float32Array.of(-1, 0, 1, 4.5));
      out.free();
      await ep.dispose();
    });
  });

  test('needs weights: at creation and in every round', async () => {
    await alone(async (world) => {
      await expect(ExpertParallel.create(world, { ...options, weights: false })).rejects.toThrow(
        "weights is false; it must be true or left out, because weighting is 'combine'",
      );
      const ep = await ExpertParallel.create(world, options);
      const stream = world.device.createStream();
      const inputs = { topkIds: Int32Array.of(0, 1, 2), payloads: { x: new Uint8Array(16) } };
      expect(() => ep.dispatch(inputs, stream)).toThrow('topkWeights is undefined; it must be given');
      await ep.dispose();
    });
  });

  test('refuses a weighting that does not exist', async () => {
    await alone(async (world) => {
      const unknown = { ...options, weighting: 'router' as 'combine' };
      await expect(ExpertParallel.create(world, unknown)).rejects.toThrow(
        `weighting is "router"; it must be one of 'experts', 'combine'`,
      );
    });
  });
});
