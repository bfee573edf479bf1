/** GPUs beside the simulator: the same cases on both in one process, and every bit that is defined compared directly. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { World } from '../../src/net/world/index.js';
import { comparePlanes } from '../suite/round-trip.js';
import { smallCases } from './cases.js';
import { keepAwake, needs } from './machine.js';

let letGo = async () => {};
before(() => {
  letGo = keepAwake();
});
after(() => letGo());

for (const ranks of [1, 2, 4]) {
  describe(`${ranks} GPUs give the simulator’s bits`, needs(ranks, 120_000), () => {
    for (const { name, run } of smallCases(ranks, 4)) {
      test(name, { timeout: 20_000 }, async () => {
        const simulated = await World.local({ ranks, device: 'sim' }, run);
        const real = await World.local({ ranks, device: 'cuda', timeoutMs: 15_000 }, run);
        const { compared, different, first } = comparePlanes(real, simulated);
        assert.equal(different, 0, first);
        assert.ok(compared > 0);
      });
    }
  });
}
