/** A rank of `heddle bench --world processes`: started by run.ts with the plan as its argument. */
import { messageOf } from '../../base/errors.js';
import { World } from '../../net/world/index.js';
import type { RoundsPlan } from './program.js';
import { roundBench } from './rounds.js';
import { measureOn } from './run.js';
import { Crew } from './timing.js';

const plan = JSON.parse(process.argv[2]!) as RoundsPlan;
const world = await World.join();
try {
  await measureOn(world, new Crew(), roundBench, plan, (event) => {
    if (world.rank === 0) process.stdout.write(`${JSON.stringify(event)}\n`);
  });
  await world.dispose();
} catch (error) {
  const reason = messageOf(error);
  process.stderr.write(`rank ${world.rank}: ${reason}\n`);
  world.circle.abandon(reason);
  process.exitCode = 1;
  // Enqueued work may wait for ranks that are gone: leaving the process frees the GPU.
  setTimeout(() => process.exit(1), 1000).unref();
}
