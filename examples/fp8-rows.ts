/**
 * Rows as fp8 with scales, as DeepSeek-V3 sends them: dispatch takes bf16, and carries e4m3 with an f32 for every 128 elements.
 * They arrive as two payloads, which a kernel of the experts reads.
 */
import { ExpertParallel, emptyTensor, fp8, read, row, tensorFrom, World } from 'heddle';
import { kernel, pointer } from 'heddle/lang';

const [experts, topK, hidden, block, tokens] = [8, 2, 512, 128, 4];

/** The part of an expert that matters here: a block of threads for each slot makes its row bf16 again. */
const dequantise = kernel(
  {
    name: 'dequantise',
    params: { ids: pointer('i32'), x: pointer('e4m3'), scales: pointer('f32'), out: pointer('bf16') },
    using: { HIDDEN: hidden, BLOCK: block, TOPK: topK },
  },
  (g, { ids, x, scales, out }, { HIDDEN, BLOCK, TOPK }) => {
    const slot = g.blockIdx.x;
    let routes = g.u32(0);
    for (let k = g.u32(0); k < TOPK; k++) routes += g.load(ids.at(slot * TOPK + k)) >= 0 ? 1 : 0;
    // Slots without an expert of this rank hold nothing.
    if (routes > 0) {
      for (let i = g.threadIdx.x; i < HIDDEN; i += g.blockDim.x) {
        const scale = g.load(scales.at((slot * HIDDEN + i) / BLOCK));
        g.store(out.at(slot * HIDDEN + i), g.bf16(g.f32(g.load(x.at(slot * HIDDEN + i))) * scale));
      }
    }
  },
);

const errors = await World.local({ ranks: 2 }, async (world) => {
  const { device, rank, ranks } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens: tokens,
    payloads: { x: fp8('bf16', hidden) },
    output: row('bf16', hidden),
  });

  const values = Float32Array.from({ length: tokens * hidden }, (_, i) => Math.sin(i + rank) * 2 ** (i % 5));
  const x = tensorFrom(device, stream, values, 'bf16', [tokens, hidden]);

  // Both experts of a token are on one rank, so its row comes home once.
  const topkIds = Int32Array.from({ length: tokens * topK }, (_, i) => (i + 4 * rank) % experts);
  const topkWeights = new Float32Array(tokens * topK).fill(1 / topK);
  const out = emptyTensor(device, 'bf16', [tokens, hidden]);

  const expert = (await device.load(dequantise.ir())).launcher({ grid: ranks * tokens, block: 128, rank });
  const received = ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
  expert.set('ids', received.experts.data);
  expert.set('x', received.payloads.x.data);
  expert.set('scales', received.payloads.xScales.data);
  expert.set('out', received.output.data);
  expert.launch(stream);
  ep.combine(out, stream);
  await ep.synchronize(stream);

  const [home, brought] = [await read(out, stream), await read(x, stream)];
  const error = brought.map((value, i) => {
    const start = i - (i % block);
    return Math.abs(home[i]! - value) / Math.max(...brought.subarray(start, start + block).map(Math.abs));
  });
  await ep.dispose();
  return Math.max(...error);
});

for (const [rank, error] of errors.entries()) {
  console.log(`rank ${rank}: rows came back within ${(100 * error).toFixed(1)} % of their largest value`);
}
