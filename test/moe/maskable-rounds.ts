/** Rounds of a layer that can leave ranks out: launched one by one, or replays of a graph that is captured once. */
import { RankLostError } from '../../src/base/errors.js';
import {
  bytesOf,
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  readBits,
} from '../../src/moe/index.js';
import type { Bits, Source } from '../../src/moe/layer/index.js';
import type { World } from '../../src/net/world/index.js';
import { ExampleExperts, layerOf, type shapeOfRounds } from '../../src/verify/testing/index.js';

export function isLoss(error: unknown): false {
  if (error instanceof RankLostError) return false;
  throw error;
}

const launch = { blocks: 2, threads: 32, parts: 1, inFlight: 4, teams: 1 };
export const tuned = (way: 'push' | 'pull') => ({
  tuning: { dispatch: launch, combine: { ...launch, way, ahead: 1 } },
});
const { blocks, threads, parts } = launch;
const spread = { blocks, threads, parts };
export const messages = { family: 'portable', tuning: { dispatch: spread, combine: spread } };

export async function maskableRounds(
  world: World,
  shape: ReturnType<typeof shapeOfRounds>,
  how: Partial<ExpertParallelOptions>,
  graph: boolean,
) {
  const ep = await ExpertParallel.create(world, layerOf(shape, { onLoss: 'mask', ...how }));
  const { device } = world;
  const stream = device.createStream();
  const experts = await ExampleExperts.create(world, ep, stream, { blocks: 2, threads: 32 });
  const { dtype, hidden } = shape.output;
  const out = emptyTensor(device, dtype, [shape.maxTokens, hidden], 'out');
  const tensors = {
    topkIds: emptyTensor(device, 'i32', [shape.maxTokens, shape.topK], 'ids'),
    topkWeights: emptyTensor(device, 'f32', [shape.maxTokens, shape.topK], 'weights'),
    payloads: { x: emptyTensor(device, dtype, [shape.maxTokens, hidden], 'x') },
  };
  const enqueue = (): void => {
    ep.dispatch(tensors, stream);
    experts.run(stream);
    ep.combine(out, stream);
  };
  if (graph) stream.beginCapture();
  if (graph) enqueue();
  const captured = graph ? stream.endCapture() : null;
  return {
    ep,
    stream,
    captured,
    /** Brings a rank's tokens, and enqueues the round. */
    begin({ topkIds, topkWeights, payloads }: Source): void {
      stream.copyIn(tensors.topkIds.data, bytesOf(topkIds));
      stream.copyIn(tensors.topkWeights.data, bytesOf(topkWeights!));
      stream.copyIn(tensors.payloads.x.data, payloads.x!);
      if (captured) captured.launch(stream);
      else enqueue();
    },
    /** The rows that came back. */
    read: (): Promise<Bits> => readBits(out, stream),
  };
}
