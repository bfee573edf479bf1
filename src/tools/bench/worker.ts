/** A rank of `heddle bench --world processes`: started by run.ts with the plan as its argument. */
import { World } from '../../net/world/index.js';
import { type BenchEvent, benchmark, newCrews, type Plan } from './program.js';

const plan = JSON.parse(process.argv[2]!) as Plan;
const world = await World.join();
const tell = (event: BenchEvent): void => {
  if (world.rank === 0) process.stdout.write(`${JSON.stringify(event)}\n`);
};
try {
  await benchmark(world, newCrews(), plan, tell);
  await world.dispose();
} catch (error) {
  const reason = error instanceof Error ? error.message : String(error);
  process.stderr.write(`rank ${world.rank}: ${reason}\n`);
  world.circle.abandon(reason);
  process.exitCode = 1;
  // What is enqueued may wait for ranks that are gone: leaving the process frees the GPU.
  setTimeout(() => process.exit(1), 1000).unref();
}
