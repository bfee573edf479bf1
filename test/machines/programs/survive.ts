/**
 * Rounds of a world of which a machine falls, at any time, and comes back: the others leave its ranks out, and admit them again. It ends five rounds
 * after that.
 */
import { RankLostError, RepeatRoundsError } from '../../../src/base/errors.js';
import { World } from '../../../src/net/world/index.js';
import { checkedRounds } from '../../net/world/programs/checked.js';

await World.join({}, async (world) => {
  const { round, agree } = await checkedRounds(world, 10_000);
  let n = 1;
  let last = Number.POSITIVE_INFINITY;
  if (world.out) {
    await world.rejoin();
    n = await agree(0);
    last = n + 5;
  }
  for (; n <= last; n++)
    try {
      if (world.masked.length > 0 && (await world.admit()).length > 0) {
        n = await agree(n);
        last = n + 5;
      }
      await round(n);
    } catch (error) {
      if (error instanceof RankLostError) continue;
      if (!(error instanceof RepeatRoundsError)) throw error;
      n = error.round - 1;
    }
  await world.barrier('all rounds are done');
});
