// A rank that its launcher's variables describe: joins, meets the others, and prints where it is.
import { World } from '../../../../src/net/world/index.js';

const world = await World.join({ timeoutMs: Number(process.argv[2] ?? 40_000) });
const { rank, ranks, topology } = world;
const names = await world.allGather(Buffer.from(`rank ${rank}`), 'names');
console.log(
  JSON.stringify({
    rank,
    ranks,
    nodes: topology.nodes,
    met: names.map((name) => Buffer.from(name).toString()),
  }),
);
await world.dispose();
