/** Engines over RDMA devices: every byte of an all-to-all between two machines by two NICs each, and all that an engine can do, on rank 0's machine. */
import { setTimeout as delay } from 'node:timers/promises';
import { deserialize, serialize } from 'node:v8';
import { World } from '../../../src/net/world/index.js';
import { closeEngines, operations } from '../../net/fabric/operations.js';
import type { TestRank } from '../../net/fabric/ranks.js';
import { allToAll } from '../../net/fabric/roles.js';

const network = { provider: 'verbs;ofi_rxm', devices: ['rxe0', 'rxe1'] } as const;

await World.join({ timeoutMs: 200_000 }, async (world) => {
  const { rank, ranks } = world;
  const exchange = async <T>(value: T): Promise<T[]> =>
    (await world.allGather(serialize(value), 'exchange')).map((bytes) => deserialize(bytes) as T);
  for (const shard of ['peer', 'bytes'] as const) {
    const options = { ...network, rails: 2, shard, timeoutMs: 60_000, thread: 'caller' };
    const args = { options, slice: 10_000, rounds: 4 };
    const of: TestRank = { rank, ranks, args, exchange, tell: () => {}, told: async () => null };
    console.log(JSON.stringify({ rank, shard, ...(await allToAll(of)) }));
  }
  if (rank === 0)
    for (const [name, run] of Object.entries(operations)) {
      await run({ ...network, lossMs: 5000, writes: 500 });
      await closeEngines();
      // An operation keeps the thread to itself, and the other ranks ask for this one.
      await delay(100);
      console.log(name);
    }
  await world.barrier();
});
