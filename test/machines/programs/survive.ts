/**
 * Rounds of a world of which a machine falls, at any time, and comes back: the others leave its ranks out, and admit them again. It ends five rounds
 * after all ranks were there again for so many times. Arguments: how many, `waitMs`, `lossTimeoutMs`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { RankLostError, RankMaskedError, RepeatRoundsError } from '../../../src/base/errors.js';
import { World } from '../../../src/net/world/index.js';
import { checkedRounds } from '../../net/world/programs/checked.js';

const [times, waitMs = 10_000, lossTimeoutMs = 30_000] = process.argv.slice(2).map(Number);
await World.join({ lossTimeoutMs }, async (world) => {
  world.onEvent((event) => {
    if (event.kind === 'lost') console.log(`${world.rank}: lost ${event.lost}: ${event.why}`);
  });
  const { round, agree } = await checkedRounds(world, waitMs);
  let left = times!;
  /** The ranks that came, and those that admitted them, have to agree on the next round: that of those who were never out. */
  let cameBack = false;
  let last = Number.POSITIVE_INFINITY;
  for (let n = 1; n <= last; n++)
    try {
      if (world.out) {
        await world.rejoin();
        [cameBack, n] = [true, 0];
      } else if (!cameBack && world.masked.length > 0) cameBack = (await world.admit()).length > 0;
      if (cameBack) {
        n = await agree(n);
        cameBack = false;
        if (world.masked.length === 0 && --left === 0) last = n + 5;
      }
      await round(n);
      // The emulated machines idle meanwhile, and others on the same processors, which may boot, get on.
      await delay(250);
    } catch (error) {
      if (error instanceof RankMaskedError) console.log(`${world.rank}: out`);
      else if (error instanceof RepeatRoundsError) n = error.round - 1;
      else if (error instanceof RankLostError) {
        await world.mask();
        n--;
      } else throw error;
    }
  await world.barrier('all rounds are done');
});
