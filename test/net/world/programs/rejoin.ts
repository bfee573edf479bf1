/**
 * The process of rank 1 is killed in the middle of a round, or stands still (the first argument: 'stops'); the others leave its ranks out for two
 * rounds, and admit it again when it has come back. Then all of it happens once more.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { RankMaskedError, RepeatRoundsError } from '../../../../src/base/errors.js';
import { World } from '../../../../src/net/world/index.js';
import { checkedRounds } from './checked.js';

const stops = process.argv[2] === 'stops';
// The launcher asks a rank to end that the others have lost.
if (stops) process.on('SIGTERM', () => {});

await World.join({}, async (world) => {
  const { rank } = world;
  const { round, agree } = await checkedRounds(world, stops ? 6000 : 30_000);
  let fell = 0;

  const fall = (n: number) => () => {
    if (n % 3 !== 2 || rank !== 1 || fell >= n) return;
    fell = n;
    process.kill(process.pid, stops ? 'SIGSTOP' : 'SIGKILL');
  };

  const pids = (await world.allGather(new Uint8Array(Uint32Array.of(process.pid).buffer), 'processes')).map(
    (bytes) => new Uint32Array(bytes.slice().buffer)[0]!,
  );
  let n = 1;
  if (world.out) {
    await world.rejoin();
    n = await agree(0);
  }
  for (; n <= 7; n++) {
    try {
      if (n % 3 === 2 && world.masked.length === 0) await world.barrier('the round before is done');
      // In the fourth and the seventh all are to be there again.
      while (n % 3 === 1 && world.masked.length > 0) {
        if ((await world.admit()).length > 0) await agree(n);
        else await delay(5);
      }
      await round(n, fall(n));
      if (n % 3 === 0 && stops && rank === 0) process.kill(pids[1]!, 'SIGCONT');
    } catch (error) {
      if (error instanceof RankMaskedError) {
        await world.rejoin();
        n = (await agree(0)) - 1;
        continue;
      }
      if (!(error instanceof RepeatRoundsError)) throw error;
      n = error.round - 1;
    }
  }
  await world.barrier('all rounds are done');
});
