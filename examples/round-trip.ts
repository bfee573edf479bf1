/** A round of an MoE layer on every GPU of this machine, or on as many simulated ones. */
import {
  ExampleExperts,
  ExpertParallel,
  emptyTensor,
  makeRoutes,
  read,
  row,
  tensorFrom,
  World,
} from 'heddle';

const layer = { experts: 32, topK: 4, maxTokens: 16, hidden: 512 };

const outputs = await World.local({ ranks: 4 }, async (world) => {
  const { device, rank } = world;
  const stream = device.createStream();

  // Once for a layer: windows and kernels.
  const ep = await ExpertParallel.create(world, {
    ...layer,
    payloads: { x: row('bf16', layer.hidden) },
    output: row('bf16', layer.hidden),
  });
  const experts = await ExampleExperts.create(world, ep, stream);

  // What this rank brings: its tokens, and where the router sent each.
  const tokens = 16 - rank;
  const { topkIds, topkWeights } = makeRoutes({ ...layer, ranks: world.ranks }, rank, tokens, 1);
  const values = new Float32Array(tokens * layer.hidden).fill(1 + rank);
  const x = tensorFrom(device, stream, values, 'bf16', [tokens, layer.hidden]);
  const out = emptyTensor(device, 'bf16', [tokens, layer.hidden]);

  // Each round: three launches, in the order of the stream. Nothing here waits.
  ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
  experts.run(stream); // reads ep.received, writes ep.received.output
  ep.combine(out, stream);

  await ep.synchronize(stream); // throws RankLostError if a rank did not come
  const result = await read(out, stream);
  await ep.dispose();
  return result;
});

for (const [rank, output] of outputs.entries()) {
  console.log(`rank ${rank}: ${output.length / layer.hidden} tokens, the first begins with ${output[0]}`);
}
