import { ExpertParallel, type ExpertParallelOptions, emptyTensor } from '../../../moe/index.js';
import type { Shape } from '../../../moe/layer/index.js';
import type { World } from '../../../net/world/index.js';
import { ExampleExperts, layerOf, makeSources } from '../../testing/index.js';

/** All that one rank needs for a round in which something goes wrong; `blocks` of experts, a warp each. */
export async function oneRound(
  world: World,
  shape: Shape,
  how: Partial<ExpertParallelOptions>,
  blocks: number,
) {
  const { tokens, topkIds, topkWeights, payloads } = makeSources(shape, shape.maxTokens, 1)[world.rank]!;
  const ep = await ExpertParallel.create(world, layerOf(shape, how));
  const stream = world.device.createStream();
  const experts = await ExampleExperts.create(world, ep, stream, { blocks, threads: 32 });
  const out = emptyTensor(world.device, shape.output.dtype, [tokens, shape.output.hidden], 'out');
  return { ep, stream, experts, out, inputs: { topkIds, topkWeights: topkWeights!, payloads } };
}
