/** One rank of a world of processes over NVSHMEM: says how long each call took that only enqueues. */
import { World } from '../../../src/net/world/index.js';
import { timesOfRounds } from '../enqueue.js';

const world = await World.join({ timeoutMs: 30_000 });
for (const split of [false, true]) {
  const times = await timesOfRounds(world, { family: 'portable', transport: 'nvshmem', split });
  console.log(JSON.stringify([...times]));
}
await world.dispose();
