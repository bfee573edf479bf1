/**
 * One rank of a world of processes over NVSHMEM: runs the round trips whose names match the pattern, and rank 0 says how
 * each went. Argument: the pattern.
 */
import { World } from '../../../src/net/world/index.js';
import { casesOverNvshmem } from '../cases.js';

const [pattern = ''] = process.argv.slice(2);
const world = await World.join({ timeoutMs: 30_000 });
for (const { name, run } of casesOverNvshmem(world.ranks).filter(({ name }) =>
  new RegExp(pattern).test(name),
)) {
  const since = performance.now();
  try {
    await run(world);
  } catch (error) {
    console.log(JSON.stringify({ name, rank: world.rank, error: String(error) }));
    process.exit(1);
  }
  if (world.rank === 0) console.log(JSON.stringify({ name, ms: Math.round(performance.now() - since) }));
}
await world.dispose();
