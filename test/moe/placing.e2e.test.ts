/** Experts with several places, and with none: where their routes go, what is counted, and what changes between rounds. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ArgumentError, HeddleError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import { ExpertParallel } from '../../src/moe/index.js';
import { type Placement, placed, rebalance } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import {
  compareRounds,
  expectedRound,
  layerOf,
  makeSources,
  placedSources,
  type RoundsOptions,
  random,
  runRounds,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';

/** Any expert anywhere, nowhere, or in several places. */
function anywhere(experts: number, ranks: number, places: number, seed: number): Placement {
  const draw = random(seed, 9);
  return { experts, ranks, places: Array.from({ length: places }, () => draw.below(experts + 1) - 1) };
}

const ways: Record<string, RoundsOptions & { readonly nodes?: number }> = {
  'one-sided': {},
  'one-sided, split': { split: true },
  portable: { family: 'portable' },
  'hybrid, 2 nodes': { family: 'hybrid', nodes: 2 },
};

/** Ranks go over to other placements before different rounds. */
describe('rounds of placed experts are those of the reference, whose experts are the places', () => {
  test.each(Object.entries(ways))('%s', (_, { nodes = 1, ...options }) =>
    fc.assert(
      fc.asyncProperty(
        fc.record({
          ranksOfNode: fc.integer({ min: 1, max: 3 }),
          experts: fc.integer({ min: 1, max: 9 }),
          more: fc.integer({ min: 0, max: 2 }),
          topK: fc.integer({ min: 1, max: 5 }),
          maxTokens: fc.integer({ min: 1, max: 20 }),
          weighting: fc.constantFrom('experts' as const, 'plan' as const),
          replicas: fc.constantFrom(1, 2),
          layers: fc.constantFrom(1, 2),
          graph: fc.boolean(),
          /** By group: so many rounds later it goes over. */
          late: fc.array(fc.nat(2), { minLength: 6, maxLength: 6 }),
          seed: fc.integer({ min: 0, max: 2 ** 30 }),
        }),
        async ({ ranksOfNode, experts, more, layers, graph, late, seed, ...sizes }) => {
          const replicas = sizes.replicas;
          const ranks = ranksOfNode * nodes * replicas;
          const shape = shapeOfRounds({
            ...{ ...sizes, ranks, experts, hidden: 8, dtype: 'bf16' },
            ...{ topK: Math.min(sizes.topK, experts), maxTokens: sizes.maxTokens * replicas },
          });
          const places = ranks * (Math.ceil(experts / ranks) + more);
          const all = [0, 1, 2, 3].map((n) => anywhere(experts, ranks, places, seed + n));
          const placements = Array.from({ length: ranks }, (_, rank) =>
            all.map((_, n) => all[Math.max(0, n - late[Math.floor(rank / replicas)]!)]!),
          );
          // A graph brings as many in each.
          const tokens = [0, 1, 2, 3].map((n) =>
            Array.from(
              { length: ranks },
              (_, r) => (seed + (graph ? 0 : n) + 3 * Math.floor(r / replicas)) % (shape.maxTokens + 1),
            ),
          );
          const rounds = tokens.map((round, n) => makeSources(shape, round, seed + n, { holes: 0.1 }));
          const machine = SimMachine.create({ ranks, mode: 'fast', seed: `${seed}` });
          const results = await World.local({ ranks, nodes, device: 'sim', sim: machine }, (world) =>
            runRounds(world, shape, rounds, {
              ...{ ...options, layers, graph, counts: true, inspect: !graph },
              placements: placements[world.rank]!,
            }),
          );
          const inPlaces = placed(shape, all[0]);
          const brought = rounds.map((sources, n) =>
            sources.map((_, rank) => placedSources(shape, sources, placements[rank]![n], nodes)[rank]!),
          );
          const summed = options.family === 'hybrid' ? nodes : 1;
          const expected = brought.map((sources) => expectedRound(inPlaces, sources, true, summed));
          expect(compareRounds(inPlaces, brought, results, expected)).toMatchObject({ different: 0 });
        },
      ),
      { seed: 3, numRuns: 6 },
    ),
  );
});

const shape = shapeOfRounds({
  ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 20, hidden: 8, dtype: 'bf16' },
});
const nobodysThird: Placement = { experts: 4, ranks: 2, places: [0, 1, -1, 0, 3, -1] };

const alone = <T>(program: (world: World) => Promise<T>, ranks = 2): Promise<T[]> =>
  World.local({ ranks, device: 'sim' }, program);

describe('statistics', () => {
  test('count routes by expert over all ranks and rounds, those that go nowhere apart', async () => {
    const rounds = [1, 2, 3].map((seed) => makeSources(shape, [20, 13], seed));
    const wanted = { routed: [0, 0, 0, 0], dropped: [0, 0, 0, 0] };
    for (const [n, sources] of rounds.entries())
      for (const { topkIds } of sources)
        for (const id of topkIds) wanted[id === 2 && n < 2 ? 'dropped' : 'routed'][id]!++;
    const got = await alone(async (world) => {
      const options = layerOf(shape, { placement: nobodysThird, rounds: 2, split: true });
      const ep = await ExpertParallel.create(world, options);
      const stream = world.device.createStream();
      const out = world.device.allocate(20 * 16, 'out');
      const halfway: unknown[] = [];
      for (const [n, sources] of rounds.entries()) {
        const { topkIds, topkWeights, payloads, tokens } = sources[world.rank]!;
        if (n === 2) ep.place({ ...nobodysThird, places: [0, 1, 2, 0, 3, -1] }, stream);
        ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads }, stream);
        ep.combine({ data: out.address, dtype: 'bf16', shape: [tokens, 8], bytes: tokens * 16 }, stream);
        if (n === 0) halfway.push(await ep.statistics(stream));
      }
      await ep.synchronize(stream);
      const all = await ep.statistics(stream);
      expect(await ep.statistics(stream)).toEqual(all);
      await ep.dispose();
      return all;
    });
    expect(got).toEqual([wanted, wanted]);
  });

  test('are what rebalance takes', async () => {
    const [one, other] = await alone(async (world) => {
      const ep = await ExpertParallel.create(world, layerOf(shape, { placement: nobodysThird }));
      const { routed } = await ep.statistics(world.device.createStream());
      await ep.dispose();
      return rebalance(routed, { ranks: 2, places: 6 });
    });
    expect(one).toEqual(other);
    expect(one!.places.filter((expert) => expert >= 0)).toHaveLength(6);
  });
});

describe('a placement that does not fit is refused, and changes nothing', () => {
  const wrong: Record<string, [Placement, string]> = {
    'other experts': [{ ...nobodysThird, experts: 5 }, 'placement.experts'],
    'other ranks': [{ ...nobodysThird, ranks: 3 }, 'placement.ranks'],
    'fewer places than experts': [{ ...nobodysThird, places: [0, 1] }, 'placement.places.length'],
    'places that ranks cannot share': [
      { ...nobodysThird, places: [0, 1, 2, 3, 0] },
      'placement.places.length',
    ],
    'an expert that there is not': [{ ...nobodysThird, places: [4, 0, 1, 2, 3, -1] }, 'placement.places[0]'],
  };
  test.each(Object.entries(wrong))('%s', async (_, [placement, argument]) => {
    await alone(async (world) => {
      const refusal = await ExpertParallel.create(world, layerOf(shape, { placement })).catch((e) => e);
      expect(refusal).toBeInstanceOf(ArgumentError);
      expect(refusal.argument).toBe(argument);
      const ep = await ExpertParallel.create(world, layerOf(shape, { placement: nobodysThird }));
      const stream = world.device.createStream();
      expect(() => ep.place(placement, stream)).toThrow(argument);
      expect(ep.placement).toBe(nobodysThird);
      await ep.dispose();
    });
  });

  test('other numbers of places than at first', async () => {
    await alone(async (world) => {
      const ep = await ExpertParallel.create(world, layerOf(shape, { placement: nobodysThird }));
      const more = { ...nobodysThird, places: [0, 1, 2, 3, -1, -1, -1, -1] };
      expect(() => ep.place(more, world.device.createStream())).toThrow(
        'placement.places.length is 8; it must be 6',
      );
      await ep.dispose();
    });
  });

  test('where experts were not placed', async () => {
    await alone(async (world) => {
      const ep = await ExpertParallel.create(world, layerOf(shape));
      const stream = world.device.createStream();
      expect(ep.placement).toBeNull();
      expect(() => ep.place(nobodysThird, stream)).toThrow(HeddleError);
      await expect(ep.statistics(stream)).rejects.toThrow('create the ExpertParallel with a placement');
      await ep.dispose();
    });
  });

  test('ranks that place experts differently', async () => {
    const other = { ...nobodysThird, places: [1, 0, -1, 0, 3, -1] };
    await alone(async (world) => {
      const placement = world.rank === 0 ? nobodysThird : other;
      await expect(ExpertParallel.create(world, layerOf(shape, { placement }))).rejects.toThrow('placement');
    });
  });

  test('ids of experts beyond those that there are, though there are as many places', async () => {
    await alone(async (world) => {
      const ep = await ExpertParallel.create(world, layerOf(shape, { placement: nobodysThird }));
      const inputs = {
        topkIds: Int32Array.of(4, 0),
        topkWeights: new Float32Array(2),
        payloads: { x: new Uint16Array(8) },
      };
      expect(() => ep.dispatch(inputs, world.device.createStream())).toThrow('topkIds[0, 0]');
      await ep.dispose();
    });
  });
});
