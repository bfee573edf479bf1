/**
 * A rank is lost in the middle of its work. The others hear which, and in what; nothing hangs. They make the world anew
 * without it, on the devices that they have, and go on.
 */
import { ExpertParallel, emptyTensor, RankLostError, row, World } from 'heddle';

const [experts, topK, hidden, tokens] = [12, 2, 64, 4];

/** A rank's program: rounds until they are done, or until `dies` says that this rank's GPU has gone. */
async function serve(world: World, rounds: number, dies: (round: number) => boolean): Promise<number> {
  const { device, rank } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens: tokens,
    payloads: { x: row('f32', hidden) },
    output: row('f32', hidden),
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
  for (let round = 0; round < rounds; round++) {
    if (dies(round)) throw new Error(`the GPU of rank ${rank} has fallen off the bus`);
    const received = ep.dispatch(inputs, stream);
    stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
    ep.combine(out, stream);
    await ep.synchronize(stream); // throws RankLostError
  }
  await ep.dispose();
  return rounds;
}

try {
  await World.local({ ranks: 3 }, async (world) => {
    try {
      await serve(world, 4, (round) => world.rank === 1 && round === 2);
    } catch (error) {
      if (!(error instanceof RankLostError)) throw error; // it is this rank that is lost
      const next = await world.renew();
      const without = `rank ${world.rank} goes on without rank ${error.ranks.join(', ')}`;
      const rounds = await serve(next, 4, () => false);
      console.log(`${without}: as rank ${next.rank} of ${next.ranks} it did ${rounds} rounds`);
    }
  });
} catch (error) {
  console.log(`the world ended: ${(error as Error).message}`);
}
