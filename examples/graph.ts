/**
 * Rounds in a CUDA graph: captured once, replayed as often as one likes. Epochs live in the windows and only grow, so
 * nothing is reset between replays, and nothing of a round needs the host.
 */
import { ExpertParallel, emptyTensor, read, row, tensorFrom, World } from 'heddle';

const [experts, topK, hidden, tokens, replays] = [16, 2, 128, 4, 5];

const sums = await World.local({ ranks: 4 }, async (world) => {
  const { device, rank } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens: tokens,
    payloads: { x: row('f32', hidden) },
    output: row('f32', hidden),
  });

  // Inputs of a captured round are on the device: a graph keeps their addresses, and reads what is there when it runs.
  const ids = Int32Array.from({ length: tokens * topK }, (_, i) => (5 * i + rank) % experts);
  const topkIds = tensorFrom(device, stream, ids, 'i32', [tokens, topK]);
  const weights = new Float32Array(tokens * topK).fill(1 / topK);
  const topkWeights = tensorFrom(device, stream, weights, 'f32', [tokens, topK]);
  const x = tensorFrom(device, stream, new Float32Array(tokens * hidden).fill(1), 'f32', [tokens, hidden]);
  const out = emptyTensor(device, 'f32', [tokens, hidden]);

  stream.beginCapture();
  const received = ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
  stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
  ep.combine(out, stream);
  // What came home is the next replay's input.
  stream.copy(x.data, out.data, out.bytes);
  const round = stream.endCapture();

  for (let i = 0; i < replays; i++) round.launch(stream);
  await ep.synchronize(stream);
  const [first] = await read(out, stream);
  round.dispose();
  await ep.dispose();
  return first;
});

for (const [rank, sum] of sums.entries()) {
  console.log(`rank ${rank}: ${replays} replays made ${sum} of 1`);
}
