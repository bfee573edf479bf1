/** A process of `heddle demo --join`: started by demo-joining.ts with its rounds as the argument, and once more after it was killed. */

import { setTimeout as delay } from 'node:timers/promises';
import { RankLostError } from '../base/errors.js';
import { World } from '../net/world/index.js';
import { compareCombined, expectedRound, makeSources, shapeOfRounds } from '../verify/testing/index.js';
import type { JoinerSays, JoiningRounds } from './demo-joining.js';
import { runRank } from './demo-rounds.js';

const { sizes, seed, provider } = JSON.parse(process.argv[2]!) as JoiningRounds;

async function roundIn(world: World, round: JoinerSays['round'], renewalMs: number): Promise<void> {
  const shape = shapeOfRounds({ ...sizes, ranks: world.ranks, dtype: 'bf16' });
  const sources = makeSources(shape, shape.maxTokens, seed);
  const { out } = await runRank(world, shape, sources[world.rank]!);
  const expected = expectedRound(shape, sources, true, world.topology.nodes)[world.rank]!;
  const { different } = compareCombined(shape, world.rank, out, expected);
  const says: JoinerSays = {
    ...{ process: Number(process.env.HEDDLE_LOCAL_RANK), rank: world.rank, ranks: world.ranks },
    ...{ round, renewalMs, values: out.length, different },
  };
  process.stdout.write(`${JSON.stringify(says)}\n`);
  await world.barrier('round');
}

/** The world that comes after this one, and how long that took. */
async function renewed(world: World): Promise<[World, number]> {
  const since = performance.now();
  return [await world.renew(), performance.now() - since];
}

await World.join({ fabric: { provider } }, async (began) => {
  if (process.env.HEDDLE_NEWCOMER !== undefined) return roundIn(began, 3, 0);
  await roundIn(began, 1, 0);
  if (began.rank === began.ranks - 1) process.kill(process.pid, 'SIGKILL');
  await began.barrier('that the killed one does not come to').catch((error: unknown) => {
    if (!(error instanceof RankLostError)) throw error;
  });
  const [smaller, lossMs] = await renewed(began);
  await roundIn(smaller, 2, lossMs);
  while ((await smaller.newcomers()) === 0) await delay(10);
  const [whole, joinMs] = await renewed(smaller);
  await roundIn(whole, 3, joinMs);
});
