/**
 * Rows as fp8 with scales, as DeepSeek-V3 sends them: e4m3, and an f32 for every 128 elements. To Heddle both are
 * payloads, bytes that travel with a token; what they mean is between the caller and its experts.
 */
import { ExpertParallel, emptyTensor, read, row, tensorFrom, World } from 'heddle';
import { kernel, pointer } from 'heddle/lang';

const [experts, topK, hidden, block, tokens] = [8, 2, 512, 128, 4];
/** The largest e4m3. */
const largest = 448;

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
    payloads: { x: row('e4m3', hidden), scales: row('f32', hidden / block) },
    output: row('bf16', hidden),
  });

  // A model's own kernel would quantise on the device; one scale for every block brings its largest value to 448.
  const values = Float32Array.from({ length: tokens * hidden }, (_, i) => Math.sin(i + rank) * 2 ** (i % 5));
  const scales = Float32Array.from({ length: values.length / block }, (_, b) => {
    const of = values.subarray(b * block, (b + 1) * block);
    return Math.max(...of.map(Math.abs)) / largest;
  });
  const quantised = values.map((value, i) => value / scales[Math.floor(i / block)]!);
  const payloads = {
    x: tensorFrom(device, stream, quantised, 'e4m3', [tokens, hidden]),
    scales: tensorFrom(device, stream, scales, 'f32', [tokens, hidden / block]),
  };

  // Both experts of a token are on one rank, so its row comes home once.
  const topkIds = Int32Array.from({ length: tokens * topK }, (_, i) => (i + 4 * rank) % experts);
  const topkWeights = new Float32Array(tokens * topK).fill(1 / topK);
  const out = emptyTensor(device, 'bf16', [tokens, hidden]);

  const expert = (await device.load(dequantise.ir())).launcher({ grid: ranks * tokens, block: 128, rank });
  const received = ep.dispatch({ topkIds, topkWeights, payloads }, stream);
  expert.set('ids', received.experts.data);
  expert.set('x', received.payloads.x.data);
  expert.set('scales', received.payloads.scales.data);
  expert.set('out', received.output.data);
  expert.launch(stream);
  ep.combine(out, stream);
  await ep.synchronize(stream);

  const home = await read(out, stream);
  const error = values.map(
    (value, i) => Math.abs(home[i]! - value) / (largest * scales[Math.floor(i / block)]!),
  );
  await ep.dispose();
  return Math.max(...error);
});

for (const [rank, error] of errors.entries()) {
  console.log(`rank ${rank}: rows came back within ${(100 * error).toFixed(1)} % of their largest value`);
}
