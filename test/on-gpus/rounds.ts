/** A layer of random routes, and what a rank brings to it, which lies on its GPU. */
import {
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  row,
  tensorFrom,
} from '../../src/moe/index.js';
import type { World } from '../../src/net/world/index.js';
import { makeRoutes } from '../../src/verify/testing/index.js';

/** `x`: the rows of all tokens, in bf16 or f32. */
export async function placedRounds(
  world: World,
  options: Omit<ExpertParallelOptions, 'payloads' | 'output'>,
  x: Uint16Array | Float32Array,
  seed = 1,
) {
  const { device, rank } = world;
  const { maxTokens, topK } = options;
  const dtype = x instanceof Float32Array ? 'f32' : 'bf16';
  const shape = [maxTokens, x.length / maxTokens] as const;
  const rows = row(dtype, shape[1]);
  const ep = await ExpertParallel.create(world, { ...options, payloads: { x: rows }, output: rows });
  const stream = device.createStream();
  const { topkIds, topkWeights } = makeRoutes(ep.shape, rank, maxTokens, seed);
  const inputs = {
    topkIds: tensorFrom(device, stream, topkIds, 'i32', [maxTokens, topK]),
    topkWeights: tensorFrom(device, stream, topkWeights, 'f32', [maxTokens, topK]),
    payloads: { x: tensorFrom(device, stream, x, dtype, shape) },
  };
  return { ep, stream, topkIds, topkWeights, inputs, out: emptyTensor(device, dtype, shape) };
}
