/** Proxies in threads beside real GPUs: kernels of two nodes reach each other through mapped memory and libfabric. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { World } from '../../src/net/world/index.js';
import { exchange } from '../net/world/programs/exchange.js';
import { needs, providersHere } from './machine.js';

const module = new URL('../net/world/programs/relay.js', import.meta.url);
for (const { provider } of providersHere()) {
  test(`kernels of two nodes over ${provider}`, needs(2, 60_000), async () => {
    const fabric = { provider, devices: provider === 'shm' ? [] : ['lo'], timeoutMs: 20_000 };
    const options = { ranks: 2, nodes: 2, device: 'cuda', timeoutMs: 30_000, fabric } as const;
    const sums = await World.local(options, (world) => exchange(world, module, 200));
    // Rank r hears 10 · round + (1 - r) in each of 200 rounds.
    assert.deepEqual(sums, [201_200, 201_000]);
  });
}
