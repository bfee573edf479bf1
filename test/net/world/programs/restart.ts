/** Rank 1 is killed in the middle of a round; the others make the world anew, and again when it has come back. */
import { setTimeout as delay } from 'node:timers/promises';
import { RankLostError } from '../../../../src/base/errors.js';
import { World } from '../../../../src/net/world/index.js';
import { roundOf } from './round.js';

async function sayRound(world: World): Promise<void> {
  const bits = await roundOf(world);
  console.log(`${world.rank} of ${world.ranks}, ${world.topology.nodes} nodes: ${bits}`);
}

const { HEDDLE_NEWCOMER } = process.env;

await World.join({}, async (began) => {
  await sayRound(began);
  await began.barrier('all have said so');
  if (HEDDLE_NEWCOMER !== undefined) return;
  if (began.rank === 1) process.kill(process.pid, 'SIGKILL');
  await began.barrier('never').catch((error: unknown) => {
    if (!(error instanceof RankLostError)) throw error;
  });
  let world = await began.renew();
  while (world.ranks < began.ranks) {
    while ((await world.newcomers()) === 0) await delay(20);
    world = await world.renew();
  }
  await sayRound(world);
  await world.barrier('all have said so');
});
