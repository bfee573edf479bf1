import { describe, expect, it } from 'vitest';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import { World } from '../../src/net/world/index.js';
import { familyNames, roundTripCases } from './round-trip.js';

/** Each of these differs by the number of ranks, or by the family; the others would only repeat themselves. */
const notable =
  /^(bf16$|bf16 as e4m3$|eight payloads|rows of 77|uneven|nobody|all remote|one rank|push, rows|pull, rows)/;
/** What the portable family does otherwise than the one-sided. */
const portable = /as (e4m3|mxfp8)|weighs|groups|graph|no weights|top-32|out of range|one small block/;

for (const family of familyNames) {
  for (const ranks of family === 'one-sided' ? [1, 2, 6] : [2]) {
    describe(`${family}: round trips of ${ranks} simulated ranks equal the reference`, () => {
      const cases = roundTripCases(ranks, { family, replays: 12 });
      for (const { name, run } of cases.filter(
        ({ name }) => notable.test(name) || (ranks === 2 && (family === 'one-sided' || portable.test(name))),
      )) {
        it(name, async () => {
          await World.local({ ranks, device: 'sim' }, run);
        });
      }
    });
  }

  describe(`${family}: round trips under the checker are free of races`, () => {
    const cases = roundTripCases(2, { family, replays: 3 }).filter(({ name }) =>
      /^(f32$|two payloads|uneven|ids out|combine weighs, bf16|a graph of)/.test(name),
    );
    for (const { name, ranks, run } of cases) {
      it(name, async () => {
        const machine = SimMachine.create({ ranks, mode: 'checked', seed: name });
        await World.local({ ranks, device: 'sim', sim: machine }, run);
        expect(machine.findings.map(formatFinding)).toEqual([]);
      });
    }
  });
}
