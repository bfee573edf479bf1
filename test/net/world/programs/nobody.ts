/** Rank 0 ends well once all others have fallen: processes that are started anew find nobody who could admit them. */
import { World } from '../../../../src/net/world/index.js';

await World.join({ device: 'sim', lossTimeoutMs: 5_000, timeoutMs: 15_000 }, async (world) => {
  if (world.out) {
    await world.rejoin();
    return;
  }
  await world.barrier('all are here');
  if (world.rank > 0) process.kill(process.pid, 'SIGKILL');
  const fallen = new Set<number>();
  await new Promise<void>((resolve) => {
    world.circle.onRankLost((loss) => {
      if ('ranks' in loss) for (const rank of loss.ranks) fallen.add(rank);
      if (fallen.size === world.ranks - 1) resolve();
    });
  });
});
