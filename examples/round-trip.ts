/** A round of an MoE layer on 4 GPUs of this machine, or on as many simulated ones. */
import { ExpertParallel, emptyTensor, read, row, tensorFrom, World } from 'heddle';

const [experts, topK, hidden, tokens] = [32, 4, 512, 16];

const outputs = await World.local({ ranks: 4 }, async (world) => {
  const { device, rank } = world;
  const stream = device.createStream();

  // Once for a layer: windows and kernels.
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens: tokens,
    payloads: { x: row('bf16', hidden) },
    output: row('bf16', hidden),
  });

  // What this rank brings: its tokens, and where the router sent each. Host arrays are copied to the device.
  const topkIds = Int32Array.from({ length: tokens * topK }, (_, i) => (5 * i + rank) % experts);
  const topkWeights = new Float32Array(tokens * topK).fill(1 / topK);
  const rows = new Float32Array(tokens * hidden).fill(1 + rank);
  const x = tensorFrom(device, stream, rows, 'bf16', [tokens, hidden]);
  const out = emptyTensor(device, 'bf16', [tokens, hidden]);

  // Each round, on the stream: nothing here waits.
  const received = ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
  // The experts of this rank would read received.experts, .weights and .payloads.x; these give every row back as it is.
  stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
  ep.combine(out, stream);

  await ep.synchronize(stream); // throws RankLostError if a rank did not come
  const result = await read(out, stream);
  await ep.dispose();
  return result;
});

for (const [rank, output] of outputs.entries()) {
  console.log(`rank ${rank}: its first token comes back as ${output[0]! / (1 + rank)} times what it was`);
}
