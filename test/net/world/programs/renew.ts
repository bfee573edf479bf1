/** Rank 1 is killed in the middle of a round; the others make the world anew, and a round in it. */
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
  return { out: out[0]!, expected: expectedRound(shape, sources)[world.rank]! };
}

await World.join({}, async (world) => {
  await roundOf(world);
  if (world.rank === 1) process.kill(process.pid, 'SIGKILL');
  try {
    for (;;) await roundOf(world);
  } catch (error) {
    if (!(error instanceof RankLostError)) throw error;
  }
  const next = await world.renew();
  const { out, expected } = await roundOf(next);
  const same = out.every((value, i) => value === expected[i]);
  console.log(`${next.rank} was ${world.rank} of ${next.ranks}: ${same ? 'the same bits' : 'other bits'}`);
});
