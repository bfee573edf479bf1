/** Message by message against the closed form, and what only the former shows. */
import { describe, expect, it } from 'vitest';
import { families } from '../../../src/moe/families/index.js';
import {
  bulkNetwork,
  candidates,
  knownMachine,
  type Question,
  type Round,
  type RoutingLaw,
  simulate,
  simulateAll,
} from '../../../src/tools/plan/index.js';

const known = knownMachine('h200-cx7');
const layer = { hidden: 7168, experts: 256, topK: 8 };

function round(name: string, ranks: number, phase: Round['phase'], change: Partial<Round> = {}): Round {
  const place = { ranks, perNode: 8 };
  const who = candidates(known, place).find((one) => one.name === name)!;
  return {
    layer,
    place,
    way: who.way,
    phase,
    tokens: 128,
    rowBytes: phase === 'dispatch' ? 7392 : 14_336,
    law: { kind: 'uniform' },
    parameters: who.basis(phase).fit.parameters,
    replicas: 1,
    seed: 1,
    late: 0,
    ...change,
  };
}

const shapes = (['dispatch', 'combine'] as const).flatMap((phase) => [
  ...(['portable', 'hybrid'] as const).flatMap((name) =>
    [16, 32, 64, 256].map((ranks) => ({ name: name as string, ranks, phase })),
  ),
  { name: 'one-sided', ranks: 8, phase },
]);

describe('agrees with the closed form of the same routes within 5 %', () => {
  it.each(shapes)('$name, EP$ranks, $phase', ({ name, ranks, phase }) => {
    const { time, closed } = simulate(round(name, ranks, phase));
    expect(Math.abs(time / closed - 1)).toBeLessThan(0.05);
  });

  it('at EP1024, a million transfers', () => {
    const { time, closed, transfers } = simulate(round('hybrid', 1024, 'dispatch'));
    expect(transfers).toBeGreaterThan(900_000);
    expect(Math.abs(time / closed - 1)).toBeLessThan(0.05);
  });
});

describe('draws what the closed form expects', () => {
  it.each<{ name: string; law: RoutingLaw; replicas: number }>([
    { name: 'four replicas', law: { kind: 'uniform' }, replicas: 4 },
    { name: 'two replicas, skewed', law: { kind: 'skewed', exponent: 0.5, seed: 1 }, replicas: 2 },
  ])('$name', ({ law, replicas }) => {
    const place = { ranks: 32, perNode: 8 };
    const question: Question = {
      ...{ model: 'deepseek_v3', layer, known, place, tokens: [128], law, replicas },
      ...{ dtype: 'fp8', combineDtype: 'bf16' },
    };
    const asked = candidates(known, place).filter(({ heddle }) => heddle);
    for (const { name, phase, closed, found } of simulateAll(question, asked, { seed: 1, late: 0 })) {
      // Its busiest rank has a little more than the mean that is expected.
      expect(found.closed / closed, `${name}, ${phase}`).toBeGreaterThan(0.97);
      expect(found.closed / closed, `${name}, ${phase}`).toBeLessThan(1.15);
      expect(Math.abs(found.time / found.closed - 1), `${name}, ${phase}`).toBeLessThan(0.1);
    }
  });
});

describe('what the closed form cannot say', () => {
  it('ranks differ where routes are skewed', () => {
    const { ranks } = simulate(
      round('portable', 32, 'dispatch', { law: { kind: 'skewed', exponent: 1, seed: 1 } }),
    );
    const sorted = [...ranks].sort((a, b) => a - b);
    expect(sorted.at(-1)! / sorted[16]!).toBeGreaterThan(1.1);
  });

  it('a burst makes messages wait where all send to the same ranks at once', () => {
    // Perfect routes run through the ranks in turn; with as many experts as ranks all ranks run in step.
    const even = simulate(round('portable', 256, 'dispatch'));
    const burst = simulate(round('portable', 256, 'dispatch', { law: { kind: 'perfect' } }));
    expect(burst.burst).toBeGreaterThan(1.5 * even.burst);
  });

  it('one late rank is waited for by those it sends to', () => {
    const on = simulate(round('hybrid', 32, 'dispatch'));
    const late = simulate(round('hybrid', 32, 'dispatch', { late: 500 }));
    expect(late.time).toBeGreaterThan(on.time + 400);
    expect(late.time).toBeLessThan(on.time + 520);
  });
});

it('is the same for the same seed, and another for another', () => {
  const times = [1, 1, 2].map((seed) => simulate(round('portable', 16, 'dispatch', { seed })).ranks);
  expect(times[0]).toEqual(times[1]);
  expect(times[2]).not.toEqual(times[0]);
});

it('every family that crosses a network has a network to cross', () => {
  expect(families.some(({ reach }) => reach === 'world')).toBe(true);
  expect(bulkNetwork(known).fits.dispatch!.seen.some(({ work }) => work.networkBytes > 0)).toBe(true);
});
