/**
 * Dispatch and combine as a send and a receive each, with a shared expert while rows are on their way: it needs
 * nothing that travels, so its time hides some of theirs.
 */
import { ExpertParallel, emptyTensor, read, row, tensorFrom, World } from 'heddle';
import { kernel, pointer } from 'heddle/lang';

const [experts, topK, hidden, tokens] = [16, 2, 128, 4];

/** Stands for the shared expert, y = 0 · y + 2 · x, and for adding it to what the others made: y = 1 · y + 1 · x. */
const blend = kernel(
  { name: 'blend', params: { y: pointer('f32'), x: pointer('f32'), keep: 'f32', take: 'f32', n: 'u32' } },
  (g, { y, x, keep, take, n }) => {
    for (let i = g.blockIdx.x * g.blockDim.x + g.threadIdx.x; i < n; i += g.gridDim.x * g.blockDim.x) {
      g.store(y.at(i), keep * g.load(y.at(i)) + take * g.load(x.at(i)));
    }
  },
);

const results = await World.local({ ranks: 4 }, async (world) => {
  const { device, rank } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens: tokens,
    payloads: { x: row('f32', hidden) },
    output: row('f32', hidden),
    split: true,
  });

  const topkIds = Int32Array.from({ length: tokens * topK }, (_, i) => (5 * i + rank) % experts);
  const topkWeights = new Float32Array(tokens * topK).fill(1 / topK);
  const rows = new Float32Array(tokens * hidden).fill(1 + rank);
  const x = tensorFrom(device, stream, rows, 'f32', [tokens, hidden]);
  const shared = tensorFrom(device, stream, new Float32Array(tokens * hidden), 'f32', [tokens, hidden]);
  const out = emptyTensor(device, 'f32', [tokens, hidden]);

  const program = await device.load(blend.ir());
  const launch = (y: number, from: number, keep: number, take: number) => {
    const launcher = program.launcher({ grid: 2, block: 128, rank });
    for (const [name, value] of Object.entries({ y, x: from, keep, take, n: tokens * hidden })) {
      launcher.set(name, value);
    }
    launcher.launch(stream);
  };

  const sent = ep.dispatchSend({ topkIds, topkWeights, payloads: { x } }, stream);
  launch(shared.data, x.data, 0, 2); // the shared expert, while rows travel
  const received = ep.dispatchRecv(sent, stream);
  stream.copy(received.output.data, received.payloads.x.data, received.output.bytes); // the routed experts
  const combining = ep.combineSend(received, stream);
  // Here the next layer's work that needs no result could run.
  ep.combineRecv(combining, out, stream);
  launch(out.data, shared.data, 1, 1);

  await ep.synchronize(stream);
  const [first] = await read(out, stream);
  await ep.dispose();
  return first! / (1 + rank);
});

for (const [rank, times] of results.entries()) {
  console.log(`rank ${rank}: experts and the shared one made ${times} times its first token`);
}
