/** Rounds whose experts give rows back as they are, so that sums say how many ranks had one: a graph, and what it must bring. */
import { ExpertParallel, emptyTensor, readBits, row, tensorFrom } from '../../../src/moe/index.js';
import type { World } from '../../../src/net/world/index.js';
import { makeRoutes } from '../../../src/verify/testing/index.js';

const [tokens, hidden, topK, expertsOfRank] = [64, 512, 4, 4];

export async function returnedRows(world: World, family: string, waitMs: number) {
  const { device, rank } = world;
  const ep = await ExpertParallel.create(world, {
    ...{ experts: expertsOfRank * world.ranks, topK, maxTokens: tokens, family, waitMs, onLoss: 'mask' },
    payloads: { x: row('f32', hidden) },
    output: row('f32', hidden),
  });
  const stream = device.createStream();
  const { topkIds, topkWeights } = makeRoutes(ep.shape, rank, tokens, 7);
  const x = new Float32Array(tokens * hidden).fill(1 + rank);
  const inputs = {
    topkIds: tensorFrom(device, stream, topkIds, 'i32', [tokens, topK]),
    topkWeights: tensorFrom(device, stream, topkWeights, 'f32', [tokens, topK]),
    payloads: { x: tensorFrom(device, stream, x, 'f32', [tokens, hidden]) },
  };
  const out = emptyTensor(device, 'f32', [tokens, hidden]);
  const captured = () => {
    stream.beginCapture();
    const { output, payloads } = ep.dispatch(inputs, stream);
    stream.copy(output.data, payloads.x.data, output.bytes);
    ep.combine(out, stream);
    return stream.endCapture();
  };
  /** Every owner that is not left out gives the row back as it is. */
  const expectedOf = (token: number, masked: readonly number[]): number => {
    const owners = [...topkIds.subarray(token * topK, (token + 1) * topK)].map((id) =>
      Math.floor(id / expertsOfRank),
    );
    return new Set(owners.filter((owner) => !masked.includes(owner))).size * (1 + rank);
  };
  /** How many of the sums that lie there are wrong. */
  const wrongSums = async (masked: readonly number[]): Promise<number> =>
    (await readBits(out, stream)).filter((sum, i) => sum !== expectedOf(Math.floor(i / hidden), masked))
      .length;
  return { ep, stream, captured, wrongSums };
}
