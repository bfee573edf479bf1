/** Rounds whose experts give rows back as they are, so that sums say how many ranks had one: a graph, and what it must bring. */
import { readBits } from '../../../src/moe/index.js';
import type { World } from '../../../src/net/world/index.js';
import { placedRounds } from '../rounds.js';

const [tokens, hidden, topK, expertsOfRank] = [64, 512, 4, 4];

export async function returnedRows(world: World, family: string, waitMs: number) {
  const { rank } = world;
  const experts = expertsOfRank * world.ranks;
  const layer = { experts, topK, maxTokens: tokens, family, waitMs, onLoss: 'mask' } as const;
  const x = new Float32Array(tokens * hidden).fill(1 + rank);
  const { ep, stream, topkIds, inputs, out } = await placedRounds(world, layer, x, 7);
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
