/** One rank of a world in which one is killed; the launcher starts it anew, and the others take it in as a newcomer. */
import { setTimeout as delay } from 'node:timers/promises';
import { RankLostError } from '../../../src/base/errors.js';
import { World } from '../../../src/net/world/index.js';
import { expectedRound, makeSources, runRounds, shapeOfRounds } from '../../../src/verify/testing/index.js';

const victim = Number(process.argv[2]);

/** Whether rounds of this world bring what the reference says. */
async function same(world: World): Promise<boolean> {
  const { rank, ranks } = world;
  const shape = shapeOfRounds({ ranks, experts: 24, topK: 4, maxTokens: 64, hidden: 512, dtype: 'bf16' });
  const rounds = [1, 2, 3].map((seed) => makeSources(shape, 64, seed));
  const { out } = await runRounds(world, shape, rounds);
  return rounds.every((sources, n) => {
    const expected = expectedRound(shape, sources)[rank]!;
    return out[n]!.every((value, i) => value === expected[i]);
  });
}

const began = await World.join({ timeoutMs: 20_000, lossTimeoutMs: 3_000 });
const well = [await same(began)];
let world = began;
if (process.env.HEDDLE_NEWCOMER === undefined) {
  await began.barrier('rounds are done');
  if (began.rank === victim) process.kill(process.pid, 'SIGKILL');
  await began.barrier('never').catch((error: unknown) => {
    if (!(error instanceof RankLostError)) throw error;
  });
  world = await began.renew();
  well.push(await same(world));
  while ((await world.newcomers()) === 0) await delay(20);
  world = await world.renew();
  well.push(await same(world));
}
await world.barrier('rounds with the newcomer are done');
console.log(JSON.stringify({ was: began.rank, rank: world.rank, ranks: world.ranks, well }));
await world.dispose();
