/** A rank of `heddle bench --world processes`: started by run.ts with the plan as its argument. */
import { messageOf } from '../../base/errors.js';
import { World } from '../../net/world/index.js';
import { onRank } from './harness.js';
import { type BenchEvent, benchmark, type Plan } from './program.js';
import { Crew } from './timing.js';
import { workload } from './workload.js';

const plan = JSON.parse(process.argv[2]!) as Plan;
const world = await World.join();
const tell = (event: BenchEvent): void => {
  if (world.rank === 0) process.stdout.write(`${JSON.stringify(event)}\n`);
};
try {
  const of = workload(plan.workload);
  await onRank(world, new Crew(), { iterations: plan.iterations, seed: of.seed }, (rig) =>
    benchmark(rig, of, plan, tell),
  );
  await world.dispose();
} catch (error) {
  const reason = messageOf(error);
  process.stderr.write(`rank ${world.rank}: ${reason}\n`);
  world.circle.abandon(reason);
  process.exitCode = 1;
  // Enqueued work may wait for ranks that are gone: leaving the process frees the GPU.
  setTimeout(() => process.exit(1), 1000).unref();
}
