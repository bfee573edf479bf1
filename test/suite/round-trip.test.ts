import { describe, expect, it } from 'vitest';
import { formatFinding, SimMachine } from '../../src/sim/index.js';
import { World } from '../../src/world/index.js';
import { roundTripCases } from './round-trip.js';

/** Each of these differs by the number of ranks; the others would only repeat themselves. */
const notable =
  /^(bf16|f16|eight|rows of 77|uneven|nobody|holes|all remote|one rank|fewer|push, rows|pull, rows|bulk, odd)/;

for (const ranks of [1, 2, 4, 8]) {
  describe(`round trips of ${ranks} simulated ranks equal the reference`, () => {
    const cases = roundTripCases(ranks, { replays: 12 });
    for (const { name, run } of cases.filter(({ name }) => ranks === 2 || notable.test(name))) {
      it(name, async () => {
        await World.local({ ranks, device: 'sim' }, run);
      });
    }
  });
}

describe('round trips under the checker are free of races', () => {
  const cases = roundTripCases(2, { replays: 3 }).filter(({ name }) =>
    /^(f32|two payloads|uneven|ids out|a graph of|bulk, odd|bulk, rows take)/.test(name),
  );
  for (const { name, ranks, run } of cases) {
    it(name, async () => {
      const machine = SimMachine.create({ ranks, mode: 'checked', seed: name });
      await World.local({ ranks, device: 'sim', sim: machine }, run);
      expect(machine.findings.map(formatFinding)).toEqual([]);
    });
  }
});
