/**
 * Rounds of a world of which a machine falls, at any time, and comes back: the others leave its ranks out, and admit them again. It ends five rounds
 * after the ranks have come back so many times (the first argument).
 */
import { RankLostError, RankMaskedError, RepeatRoundsError } from '../../../src/base/errors.js';
import { World } from '../../../src/net/world/index.js';
import { checkedRounds } from '../../net/world/programs/checked.js';

await World.join({}, async (world) => {
  const { round, agree } = await checkedRounds(world, 10_000);
  let comings = Number(process.argv[2]);
  let n = 1;
  let last = Number.POSITIVE_INFINITY;
  /** All are there again: the next round is that of those who were never out. */
  const allAreBack = async () => {
    n = await agree(n);
    if (--comings === 0) last = n + 5;
  };
  if (world.out) {
    await world.rejoin();
    n = 0;
    await allAreBack();
  }
  for (; n <= last; n++)
    try {
      if (world.masked.length > 0 && (await world.admit()).length > 0) await allAreBack();
      await round(n);
    } catch (error) {
      if (error instanceof RankMaskedError) {
        console.log(`${world.rank}: out`);
        await world.rejoin();
        n = 0;
        await allAreBack();
        n--;
      } else if (error instanceof RepeatRoundsError) n = error.round - 1;
      else if (!(error instanceof RankLostError)) throw error;
    }
  await world.barrier('all rounds are done');
});
