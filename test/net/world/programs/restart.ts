/** Rank 1 is killed in the middle of a round; the others make the world anew, and again when it has come back. */
import { setTimeout as delay } from 'node:timers/promises';
import { RankLostError } from '../../../../src/base/errors.js';
import { World } from '../../../../src/net/world/index.js';
import {
  expectedRound,
  makeSources,
  runRounds,
  shapeOfRounds,
} from '../../../../src/verify/testing/index.js';

const layer = { experts: 6, topK: 2, maxTokens: 4, hidden: 16, dtype: 'bf16' } as const;

async function roundOf(world: World) {
  const shape = shapeOfRounds({ ...layer, ranks: world.ranks });
  const sources = makeSources(shape, layer.maxTokens, 7);
  const { out } = await runRounds(world, shape, [sources], { family: 'portable', waitMs: 30_000 });
  const expected = expectedRound(shape, sources)[world.rank]!;
  const same = out[0]!.every((value, i) => value === expected[i]);
  console.log(
    `${world.rank} of ${world.ranks}, ${world.topology.nodes} nodes: ${same ? 'the same bits' : 'other bits'}`,
  );
}

const { HEDDLE_NEWCOMER } = process.env;

await World.join({}, async (began) => {
  await roundOf(began);
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
  await roundOf(world);
  await world.barrier('all have said so');
});
