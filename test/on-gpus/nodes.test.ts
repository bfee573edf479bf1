/** GPUs of one machine as nodes of one GPU each: the reference comparison of test/suite, by proxies over libfabric. */
import { describe, test } from 'node:test';
import { World } from '../../src/net/world/index.js';
import { roundTripCases } from '../suite/round-trip.js';
import { keepAwakeBetween, needs, providersHere } from './machine.js';

keepAwakeBetween();

for (const { provider } of providersHere()) {
  const fabric = { provider, devices: provider === 'shm' ? [] : ['lo'], timeoutMs: 20_000 };
  describe(`hybrid, 2 nodes over ${provider}`, needs(2, 120_000), () => {
    const options = { ranks: 2, nodes: 2, device: 'cuda', timeoutMs: 15_000, fabric } as const;
    for (const { name, run } of roundTripCases(2, { family: 'hybrid', nodes: 2, replays: 50 })) {
      // A group lies inside a node.
      if (name.startsWith('groups')) continue;
      test(name, { timeout: 20_000 }, async () => {
        await World.local(options, run);
      });
    }
  });
}
