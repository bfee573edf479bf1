/**
 * Bring your own GEMM: rows sorted by expert, their exact numbers on the host, one matrix product an expert, and the sum
 * that travels back. On 4 GPUs of this machine, or on as many simulated ones.
 */
import {
  type Device,
  ExpertParallel,
  ExpertsPlan,
  emptyTensor,
  read,
  row,
  type Stream,
  type Tensor,
  tensorFrom,
  World,
} from 'heddle';
import { kernel, pointer } from 'heddle/lang';

const [ranks, experts, topK, hidden, tokens] = [4, 8, 2, 32, 6];
const perRank = experts / ranks;

/** out[row] = x[row] · w, as plainly as can be: a block a row, a thread a column. Any library's GEMM would do. */
const matmul = kernel(
  {
    name: 'matmul',
    maxThreads: hidden,
    params: { x: pointer('f32'), w: pointer('f32'), out: pointer('f32') },
    using: { N: hidden },
  },
  (g, { x, w, out }, { N }) => {
    const row = g.blockIdx.x * N;
    let sum = g.f32(0);
    for (let i = g.u32(0); i < N; i += 1) {
      sum += g.load(x.at(row + i)) * g.load(w.at(i * N + g.threadIdx.x));
    }
    g.store(out.at(row + g.threadIdx.x), sum);
  },
);

/** Enqueues a product of `rows` rows, from host-known sizes, as a library would be called. */
async function gemm(device: Device, rank: number) {
  const program = await device.load(matmul.ir());
  const launcher = program.launcher({ grid: 1, block: hidden, rank });
  return (x: number, w: number, out: number, rows: number, stream: Stream): void => {
    if (rows === 0) return;
    launcher.set('x', x);
    launcher.set('w', w);
    launcher.set('out', out);
    launcher.setGrid(rows);
    launcher.launch(stream);
  };
}

/** Expert e multiplies by e + 1: a diagonal, so that anyone can say what must come back. */
const weightsOf = (first: number): Float32Array =>
  Float32Array.from({ length: perRank * hidden * hidden }, (_, i) => {
    const [expert, at] = [first + Math.floor(i / (hidden * hidden)), i % (hidden * hidden)];
    return at % (hidden + 1) === 0 ? expert + 1 : 0;
  });

export const outputs = await World.local({ ranks }, async (world) => {
  const { device, rank } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens: tokens,
    payloads: { x: row('f32', hidden) },
    output: row('f32', hidden),
  });
  const plan = await ExpertsPlan.create(ep);
  const product = await gemm(device, rank);
  const w = tensorFrom(device, stream, weightsOf(rank * perRank), 'f32');
  const sorted = emptyTensor(device, 'f32', [plan.rows, hidden]);
  const made = emptyTensor(device, 'f32', [plan.rows, hidden]);
  const out = emptyTensor(device, 'f32', [tokens, hidden]);

  const topkIds = Int32Array.from({ length: tokens * topK }, (_, i) => (3 * i + rank) % experts);
  const topkWeights = new Float32Array(tokens * topK).fill(1 / topK);
  const x = new Float32Array(tokens * hidden).fill(1);

  const received = ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
  plan.plan(received, stream);
  plan.expand(received, { x: sorted }, stream);

  // This GEMM wants its sizes on the host: one small copy, and the only wait of the round.
  const { counts, offsets } = await plan.sizes(stream);
  const rowAt = (of: Tensor, row: number): number => of.data + row * hidden * 4;
  for (const [e, rows] of counts.entries()) {
    const start = offsets[e]!;
    product(rowAt(sorted, start), w.data + e * hidden * hidden * 4, rowAt(made, start), rows, stream);
  }

  plan.reduce(received, made, stream);
  ep.combine(out, stream);
  await ep.synchronize(stream);
  const result = await read(out, stream);
  plan.dispose();
  await ep.dispose();
  return result;
});

for (const [rank, output] of outputs.entries()) {
  console.log(`rank ${rank}: its first token comes back as ${output[0]} times what it was`);
}
