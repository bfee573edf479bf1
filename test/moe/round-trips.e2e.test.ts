import fc from 'fast-check';
import { expect, it } from 'vitest';
import { RankLostError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import { ExpertParallel, readBits, row } from '../../src/moe/index.js';
import { type Bits, dtypes } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import type { RoutesOptions } from '../../src/verify/testing/index.js';
import { type Case, expectReference } from '../suite/cases.js';

/** The same shapes every time, in some seconds. */
const seed = 2026_11;

const routes: fc.Arbitrary<RoutesOptions> = fc.record({
  router: fc.constantFrom<NonNullable<RoutesOptions['router']>>(
    { kind: 'uniform' },
    { kind: 'balanced' },
    { kind: 'remote' },
    { kind: 'repeated' },
    { kind: 'one-rank', target: 0 },
    { kind: 'zipf', exponent: 1 },
  ),
  holes: fc.constantFrom(0, 0.3, 1),
});

/** Random layers, inputs and ways to spread them. */
function trips(ranks: fc.Arbitrary<number>, mostTokens: number): fc.Arbitrary<Case> {
  const launch = fc.record({
    blocks: fc.integer({ min: 1, max: 5 }),
    warps: fc.integer({ min: 1, max: 3 }),
    /** All warps are one team, or each is one. */
    alone: fc.boolean(),
    parts: fc.integer({ min: 1, max: 3 }),
    inFlight: fc.integer({ min: 1, max: 8 }),
  });
  return fc
    .record({
      ranks,
      experts: fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 300 })),
      topK: fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 32 })),
      maxTokens: fc.integer({ min: 1, max: mostTokens }),
      hidden: fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(8, 16, 64, 264)),
      dtype: fc.constantFrom('bf16' as const, 'f16' as const, 'f32' as const),
      extra: fc.array(fc.integer({ min: 1, max: 50 }), { maxLength: 7 }),
      routes,
      stray: fc.boolean(),
      seed: fc.nat(1000),
      times: fc.integer({ min: 1, max: 3 }),
      weights: fc.boolean(),
      counts: fc.boolean(),
      inspect: fc.boolean(),
      dispatch: launch,
      combine: launch,
      way: fc.constantFrom('push' as const, 'pull' as const),
      ahead: fc.integer({ min: 1, max: 3 }),
      tuned: fc.boolean(),
    })
    .map(({ seed, dispatch, combine, way, ahead, tuned, times, ...of }) => {
      // Uneven, some empty, and different in every round.
      const tokens = Array.from({ length: times }, (_, n) =>
        Array.from({ length: of.ranks }, (_, r) => (seed + r * 3 + n) % (of.maxTokens + 1)),
      );
      const spread = ({ warps: least, alone, ...launch }: typeof dispatch) => {
        const warps = Math.ceil(Math.max(least * 32, of.ranks) / 32);
        return { ...launch, threads: warps * 32, teams: alone ? 1 : warps };
      };
      // Only whole vectors are pushed.
      const pushable = (of.hidden * dtypes[of.dtype].size) % 16 === 0;
      const tuning = {
        dispatch: spread(dispatch),
        combine: { ...spread(combine), way: pushable ? way : ('pull' as const), ahead },
      };
      return { ...of, topK: Math.min(of.topK, of.experts), tokens, ...(tuned && { tuning }) };
    });
}

it.each([
  ['of any shape', fc.integer({ min: 1, max: 6 }), 4, 16],
  ['of many ranks', fc.integer({ min: 7, max: 40 }), 1, 2],
] as const)('rounds %s give what the reference gives, bit by bit', async (_, ranks, tokens, numRuns) => {
  await fc.assert(
    fc.asyncProperty(trips(ranks, tokens), fc.nat(1000), (trip, run) =>
      expectReference(trip, { schedule: 'random', seed: `${run}` }),
    ),
    { seed, numRuns },
  );
});

it('rounds of any shape are free of races under any schedule', async () => {
  await fc.assert(
    fc.asyncProperty(trips(fc.integer({ min: 1, max: 4 }), 2), fc.nat(1000), (trip, run) =>
      expectReference(
        { ...trip, checked: true },
        { schedule: run % 2 === 0 ? 'random' : 'priority', seed: `${run}` },
      ),
    ),
    { seed, numRuns: 8 },
  );
});

it('72 ranks, the most there are, agree with the reference', () =>
  expectReference({ ranks: 72, experts: 200, topK: 8, maxTokens: 1, hidden: 16, times: 2, counts: true }));

it('slots of a rank that was lost before it sent anything name no expert', async () => {
  const victim = 1;
  const machine = SimMachine.create({ ranks: 2 });
  let ids: Bits | undefined;
  const world = World.local({ ranks: 2, device: 'sim', sim: machine }, async (world) => {
    const layer = { experts: 4, topK: 2, maxTokens: 3, payloads: {}, output: row('bf16', 8) } as const;
    const ep = await ExpertParallel.create(world, layer);
    const stream = world.device.createStream();
    if (world.rank === victim) {
      machine.kill(victim);
      await stream.synchronize();
    }
    const topkWeights = Float32Array.of(1, 1);
    const received = ep.dispatch({ topkIds: Int32Array.of(0, 1), topkWeights, payloads: {} }, stream);
    await expect(ep.synchronize(stream)).rejects.toThrow(RankLostError);
    ids = await readBits(received.experts, stream);
  });
  await expect(world).rejects.toThrow('was killed');
  expect(Array.from(ids!)).toEqual([0, 1, -1, -1, -1, -1, ...Array(6).fill(-1)]);
});
