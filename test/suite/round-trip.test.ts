import { describe, expect, it } from 'vitest';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import { World } from '../../src/net/world/index.js';
import { comparePlanes, familyNames, roundTripCases } from './round-trip.js';

/** Each of these differs by the number of ranks: alone, and many; the others would only repeat themselves. */
const notable =
  /^(bf16$|bf16 as e4m3$|f16$|eight payloads|rows of 77|uneven|nobody|holes|all remote|one rank|fewer|push, rows|pull, rows)/;

for (const family of familyNames) {
  for (const ranks of [1, 2, 6]) {
    describe(`${family}: round trips of ${ranks} simulated ranks equal the reference`, () => {
      const cases = roundTripCases(ranks, { family, replays: 12 });
      for (const { name, run } of cases.filter(({ name }) => ranks === 2 || notable.test(name))) {
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

it.each(['holes (-1)', 'eight payloads', 'combine weighs, bf16 as e4m3', 'top-32'])(
  'all families bring the same bits: %s',
  async (wanted) => {
    const [expected, ...others] = await Promise.all(
      familyNames.map((family) => {
        const { run } = roundTripCases(2, { family, replays: 3 }).find(({ name }) => name === wanted)!;
        return World.local({ ranks: 2, device: 'sim' }, run);
      }),
    );
    for (const planes of others) expect(comparePlanes(planes, expected!)).toMatchObject({ different: 0 });
  },
);

it('what ranks have in the end can be compared with what others have, bit by bit', async () => {
  const { ranks, run } = roundTripCases(2, { replays: 3 }).find(({ name }) => name === 'holes (-1)')!;
  const [one, other] = [await World.local({ ranks, device: 'sim' }, run), await World.local({ ranks }, run)];
  expect(comparePlanes(one, other)).toMatchObject({ different: 0 });
  const { bits } = one[1]!.find(({ name }) => name === 'round 2: out')!;
  bits[5]! ^= 1;
  expect(comparePlanes(one, other)).toMatchObject({ different: 1 });
  expect(comparePlanes(one, other).first).toMatch(/^rank 1, round 2: out\[5\] is/);
});
