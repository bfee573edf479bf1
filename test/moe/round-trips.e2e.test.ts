import fc from 'fast-check';
import { expect, it } from 'vitest';
import { shapeOfRounds } from '../../src/moe/index.js';
import { formatFinding } from '../../src/sim/index.js';
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
    { seed, numRuns: 40 },
  );
});

it('so do rounds of many ranks', async () => {
  await fc.assert(
    fc.asyncProperty(trips(fc.integer({ min: 7, max: 72 }), { tokens: 1 }), async (trip) => {
      expect((await travel(trip)).comparison.different).toBe(0);
    }),
    { seed, numRuns: 6 },
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
    { seed, numRuns: 20 },
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
    const launch = { blocks: 3, threads: 32, parts: 2 };
    const tuning = { dispatch: launch, combine: { ...launch, way, ahead: 2 } };
    const trip = fullTrip(shape, 2, { inspect: true, counts: true, tuning });
    const { results: first } = await travel(trip, { schedule: 'in-order' });
    for (const schedule of ['random', 'priority'] as const) {
      for (const seed of ['1', '2', '3']) {
        const { results } = await travel(trip, { schedule, seed });
        expect(results.map(({ out }) => out)).toEqual(first.map(({ out }) => out));
        // Where nothing arrived, planes hold nothing defined; ids say where that is.
        const ids = (all: typeof results) => all.map(({ received }) => received.map((r) => r.experts));
        expect(ids(results)).toEqual(ids(first));
      }
    }
  }
});

it('a captured round may be replayed on new inputs', async () => {
  const shape = shapeOfRounds({ ranks: 3, experts: 7, topK: 3, maxTokens: 3, hidden: 16, dtype: 'f16' });
  expect((await travel(fullTrip(shape, 20, { graph: true, counts: true }))).comparison.different).toBe(0);
});
