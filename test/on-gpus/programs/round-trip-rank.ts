/**
 * One rank of a world of processes: runs the cases of its world, and rank 0 says how each went. Arguments: a pattern of
 * the cases' names; `alone` where the process shall see no GPU but its own, as some launchers have it, or `nvshmem`.
 */
import { World } from '../../../src/net/world/index.js';
import { casesOnGpus, casesOverNvshmem } from '../cases.js';

const [pattern = '', how] = process.argv.slice(2);
// Read by the driver when it is loaded, which joining does.
if (how === 'alone') process.env.CUDA_VISIBLE_DEVICES = process.env.HEDDLE_LOCAL_RANK;
const world = await World.join({ timeoutMs: 30_000 });
const cases = (how === 'nvshmem' ? casesOverNvshmem : casesOnGpus)(world.ranks);
for (const { name, run } of cases.filter(({ name }) => new RegExp(pattern).test(name))) {
  const since = performance.now();
  try {
    await run(world);
  } catch (error) {
    // The others are in the middle of it; they see this rank lost.
    console.log(JSON.stringify({ name, rank: world.rank, error: String(error) }));
    process.exit(1);
  }
  if (world.rank === 0) console.log(JSON.stringify({ name, ms: Math.round(performance.now() - since) }));
}
await world.dispose();
