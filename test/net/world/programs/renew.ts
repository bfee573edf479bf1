/** Rank 1 is killed in the middle of a round; the others make the world anew, and a round in it. */
import { RankLostError } from '../../../../src/base/errors.js';
import { World } from '../../../../src/net/world/index.js';
import { roundOf } from './round.js';

await World.join({}, async (world) => {
  await roundOf(world);
  if (world.rank === 1) process.kill(process.pid, 'SIGKILL');
  try {
    for (;;) await roundOf(world);
  } catch (error) {
    if (!(error instanceof RankLostError)) throw error;
  }
  const next = await world.renew();
  console.log(`${next.rank} was ${world.rank} of ${next.ranks}: ${await roundOf(next)}`);
});
