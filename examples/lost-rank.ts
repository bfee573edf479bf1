/**
 * A rank is lost in the middle of its work. The others leave it out, repeat the round that it was lost in, and go on in the same
 * world, with the layers that they have.
 */
import { ExpertParallel, emptyTensor, RankLostError, RepeatRoundsError, row, World } from 'heddle';

const [experts, topK, hidden, tokens, last] = [12, 2, 64, 4, 6];

async function serve(world: World): Promise<string> {
  const { device, rank } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens: tokens,
    payloads: { x: row('f32', hidden) },
    output: row('f32', hidden),
    onLoss: 'mask',
    // How long a kernel waits for a peer before it gives up; what a runtime can bear.
    waitMs: 1_000,
  });
  const topkIds = Int32Array.from({ length: tokens * topK }, (_, i) => (i + rank) % experts);
  const inputs = {
    topkIds,
    topkWeights: new Float32Array(tokens * topK).fill(1 / topK),
    payloads: { x: new Float32Array(tokens * hidden).fill(1) },
  };
  const out = emptyTensor(device, 'f32', [tokens, hidden]);
  for (let round = 1; round <= last; round++) {
    if (rank === 1 && round === 3) throw new Error(`the GPU of rank ${rank} has fallen off the bus`);
    const received = ep.dispatch(inputs, stream);
    stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
    ep.combine(out, stream);
    try {
      await ep.synchronize(stream);
    } catch (error) {
      if (!(error instanceof RepeatRoundsError)) throw error;
      round = error.round - 1; // a rank that has nothing to repeat hears nothing, but sees it in world.masked
    }
  }
  await world.barrier('all rounds are done').catch((error) => {
    if (!(error instanceof RankLostError)) throw error;
  });
  return `rank ${rank} did ${last} rounds, the last of them without rank ${world.masked}`;
}

try {
  await World.local({ ranks: 3 }, async (world) => console.log(await serve(world)));
} catch (error) {
  console.log(`the world ended: ${(error as Error).message}`);
}
