/** A small round of a world, compared with the reference. */
import type { World } from '../../../../src/net/world/index.js';
import {
  expectedRound,
  makeSources,
  runRounds,
  shapeOfRounds,
} from '../../../../src/verify/testing/index.js';

const layer = { experts: 6, topK: 2, maxTokens: 4, hidden: 16, dtype: 'bf16' } as const;

export async function roundOf(world: World): Promise<'the same bits' | 'other bits'> {
  const shape = shapeOfRounds({ ...layer, ranks: world.ranks });
  const sources = makeSources(shape, layer.maxTokens, 7);
  const { out } = await runRounds(world, shape, [sources], { waitMs: 30_000 });
  const expected = expectedRound(shape, sources)[world.rank]!;
  return out[0]!.every((value, i) => value === expected[i]) ? 'the same bits' : 'other bits';
}
