// A process of a world of several nodes, whose GPUs it simulates: runs cases of the common suite over the provider that it is
// told, on a device (default lo), those whose names match what it is told, and prints for each of its ranks which were right.
import { setFlagsFromString } from 'node:v8';
import type { ProviderName } from '../../../src/net/fabric/index.js';
import { World } from '../../../src/net/world/index.js';
import { kernelsStayBytecode } from '../../v8.js';
import { casesAcross } from '../round-trip.js';

for (const flag of kernelsStayBytecode) setFlagsFromString(flag);
const [provider, device = 'lo', wanted = ''] = process.argv.slice(2) as [ProviderName, string?, string?];
const devices = provider === 'shm' ? [] : [device];

// Messages of node 0 lie in the host's memory, all others' in memory of their simulated GPUs: nobody needs the same.
const wires = process.env.HEDDLE_RANK === '0' ? 'host' : 'gpu';

// In an emulated machine a rank may try its wire for a minute longer than another.
await World.join({ timeoutMs: 200_000, fabric: { provider, devices, wires } }, async (world) => {
  const { side, why } = await world.wires();
  console.log(JSON.stringify({ rank: world.rank, name: `${side}: ${why}` }));
  for (const { name, run } of casesAcross(world.ranks, world.topology.nodes)) {
    if (!new RegExp(wanted).test(name)) continue;
    await run(world);
    console.log(JSON.stringify({ rank: world.rank, name }));
  }
});
