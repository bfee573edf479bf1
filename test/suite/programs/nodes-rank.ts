// A process of a world of several nodes, whose GPUs it simulates: runs cases of the common suite over the provider that it is
// told, and prints for each of its ranks what went wrong.
import type { ProviderName } from '../../../src/fabric/index.js';
import { World } from '../../../src/world/index.js';
import { familiesAcross, roundTripCases } from '../round-trip.js';

const provider = process.argv[2] as ProviderName;
const wanted = new RegExp(process.argv[3]!);
const devices = provider === 'shm' ? [] : ['lo'];

await World.join({ fabric: { provider, devices } }, async (world) => {
  for (const how of familiesAcross) {
    const cases = roundTripCases(world.ranks, { ...how, replays: 3 });
    for (const { name, run } of cases.filter((one) => wanted.test(one.name))) {
      await run(world);
      console.log(JSON.stringify({ rank: world.rank, name: `${how.family}: ${name}` }));
    }
  }
});
