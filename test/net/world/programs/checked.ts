/** Rounds of a layer that leaves lost ranks out, each compared with the reference. */
import { ExpertParallel, emptyTensor, readBits } from '../../../../src/moe/index.js';
import { reference } from '../../../../src/moe/layer/index.js';
import type { World } from '../../../../src/net/world/index.js';
import {
  compareCombined,
  ExampleExperts,
  expectedRound,
  layerOf,
  makeSources,
  shapeOfRounds,
} from '../../../../src/verify/testing/index.js';

const layer = { experts: 8, topK: 3, maxTokens: 4, hidden: 16, dtype: 'bf16' } as const;

export async function checkedRounds(world: World, waitMs: number) {
  const { rank, ranks, device } = world;
  const shape = shapeOfRounds({ ...layer, ranks });
  const ep = await ExpertParallel.create(world, layerOf(shape, { onLoss: 'mask', waitMs }));
  const stream = device.createStream();
  const experts = await ExampleExperts.create(world, ep, stream, { blocks: 2, threads: 32 });
  const out = emptyTensor(device, layer.dtype, [layer.maxTokens, layer.hidden]);
  return {
    /** Round n; `dispatched` is called in its middle. Prints whether its rows are right. */
    async round(n: number, dispatched = (): void => {}): Promise<void> {
      const sources = makeSources(shape, layer.maxTokens, n);
      const { topkIds, topkWeights, payloads } = sources[rank]!;
      ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads: { x: payloads.x! } }, stream);
      dispatched();
      experts.run(stream);
      ep.combine(out, stream);
      await ep.synchronize(stream);
      // Rows are added up on each node first where messages go between nodes by rails.
      const nodes = ep.family === 'hybrid' ? world.topology.nodes : 1;
      const left = reference.without(shape, sources, world.masked);
      const expected = expectedRound(shape, left, true, nodes)[rank]!;
      const { different } = compareCombined(shape, rank, await readBits(out, stream), expected);
      console.log(`${rank}: round ${n} without ${world.masked}: ${different === 0 ? 'right' : 'wrong'}`);
    },
    /** The highest number that a rank says: where all are, those that have run on say it to the others. */
    async agree(n: number): Promise<number> {
      const all = await world.allGather(Buffer.from(String(n)), 'the round');
      return Math.max(...all.map((bytes) => Number(Buffer.from(bytes).toString())));
    },
  };
}
