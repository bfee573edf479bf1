import { describe, expect, it } from 'vitest';
import { runOnce } from '../../../src/verify/check/index.js';
import { stopsOf } from '../../../src/verify/check/subjects/stops.js';

const single = { blocks: 1, threads: 32, parts: 1 };
const hybrid = {
  family: 'hybrid',
  tuning: { dispatch: { blocks: 1, threads: 32, chunk: 1 }, combine: single },
} as const;
/** As many steps as the configurations of `heddle check` say that there are. */
const rounds = [
  ['hybrid, 3 nodes', 13, { ...hybrid, nodes: 3, ranks: 3 }],
  ['hybrid, 2 nodes of 2', 18, { ...hybrid, nodes: 2, ranks: 4 }],
] as const;

describe.each(rounds)('a node that stops: %s', (name, steps, how) => {
  const stops = stopsOf(name, steps + 1, how);

  it.each([0, steps >> 1, steps])('after %i steps is named to all survivors', async (step) => {
    const { findings, machine } = await runOnce(stops[step]!, { seed: '1', schedule: 'random' });
    expect(findings).toEqual([]);
    expect(machine.statistics.timeLimits).toBeLessThanOrEqual(1);
  });

  it('has no further steps', async () => {
    const { findings } = await runOnce(stops.at(-1)!, { seed: '1', schedule: 'random' });
    expect(findings).toMatchObject([
      { kind: 'wrong-result', message: expect.stringContaining('were told nothing') },
    ]);
  });
});
