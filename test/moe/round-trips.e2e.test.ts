import fc from 'fast-check';
import { expect, it } from 'vitest';
import { RankLostError } from '../../src/base/errors.js';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import { ExpertParallel, readBits, row } from '../../src/moe/index.js';
import type { Bits } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { shapeOfRounds } from '../../src/verify/testing/index.js';
import { fullTrip, travel, trips } from './trips.js';

/** The same shapes every time, in some seconds. */
const seed = 2026_11;

it('rounds of any shape give what the reference gives, bit by bit', async () => {
  const ranks = fc.integer({ min: 1, max: 6 });
  await fc.assert(
    fc.asyncProperty(trips(ranks, { tokens: 4 }), fc.nat(1000), async (trip, run) => {
      const { comparison } = await travel(trip, { schedule: 'random', seed: `${run}` });
      expect(comparison).toMatchObject({ different: 0, maxAbsError: 0 });
    }),
    { seed, numRuns: 25 },
  );
});

it('so do rounds of many ranks', async () => {
  await fc.assert(
    fc.asyncProperty(trips(fc.integer({ min: 7, max: 72 }), { tokens: 1 }), async (trip) => {
      expect((await travel(trip)).comparison.different).toBe(0);
    }),
    { seed, numRuns: 4 },
  );
});

it('rounds of any shape are free of races under any schedule', async () => {
  const ranks = fc.integer({ min: 1, max: 4 });
  await fc.assert(
    fc.asyncProperty(trips(ranks, { tokens: 2 }), fc.nat(1000), async (trip, run) => {
      const schedule = run % 2 === 0 ? 'random' : 'priority';
      const { comparison, machine } = await travel(trip, { mode: 'checked', schedule, seed: `${run}` });
      expect(machine.findings.map(formatFinding)).toEqual([]);
      expect(comparison.different).toBe(0);
    }),
    { seed, numRuns: 12 },
  );
});

it('72 ranks, the most there are, agree with the reference', async () => {
  const shape = shapeOfRounds({ ranks: 72, experts: 200, topK: 8, maxTokens: 1, hidden: 16, dtype: 'bf16' });
  expect((await travel(fullTrip(shape, 2, { counts: true }))).comparison.different).toBe(0);
});

it('64 ranks are free of races', async () => {
  const shape = shapeOfRounds({ ranks: 64, experts: 128, topK: 4, maxTokens: 1, hidden: 8, dtype: 'bf16' });
  const { machine, comparison } = await travel(fullTrip(shape, 1), { mode: 'checked', seed: '64' });
  expect(machine.findings.map(formatFinding)).toEqual([]);
  expect(comparison.different).toBe(0);
});

it('the same inputs give the same bits in every order in which the machine may run', async () => {
  const shape = shapeOfRounds({ ranks: 4, experts: 10, topK: 6, maxTokens: 5, hidden: 24, dtype: 'bf16' });
  for (const way of ['push', 'pull'] as const) {
    const launch = { blocks: 3, threads: 32, parts: 2, inFlight: 4, teams: 1 } as const;
    const tuning = { dispatch: launch, combine: { ...launch, way, ahead: 2 } };
    const trip = fullTrip(shape, 2, { inspect: true, counts: true, tuning });
    const { results: first } = await travel(trip, { schedule: 'in-order' });
    for (const schedule of ['random', 'priority'] as const) {
      for (const seed of ['1', '2', '3']) {
        const { results } = await travel(trip, { schedule, seed });
        expect(results.map(({ out }) => out)).toEqual(first.map(({ out }) => out));
        // Where nothing arrived, planes hold nothing defined; ids say where that is.
        const ids = (all: typeof results) => all.map(({ received }) => received.map((r) => r?.experts));
        expect(ids(results)).toEqual(ids(first));
      }
    }
  }
});

it('a captured round may be replayed on new inputs', async () => {
  const shape = shapeOfRounds({ ranks: 3, experts: 7, topK: 3, maxTokens: 3, hidden: 16, dtype: 'f16' });
  expect((await travel(fullTrip(shape, 20, { graph: true, counts: true }))).comparison.different).toBe(0);
});

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
