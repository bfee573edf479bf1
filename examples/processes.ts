/**
 * A round of an MoE layer in a world of processes, one a GPU; or, with `--device sim`, one that simulates all of them.
 *
 *   npx heddle run -n 4 examples/processes.ts                 # on 4 GPUs
 *   npx heddle run -n 4 --device sim examples/processes.ts    # without any
 */
import { ExpertParallel, emptyTensor, read, row, tensorFrom, World } from 'heddle';

const [experts, topK, hidden, tokens] = [16, 2, 256, 8];

// Which rank this is, and where the others are, is found in the environment: torchrun, Slurm and MPI do as well.
await World.join({}, async (world) => {
  const { device, rank, ranks } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens: tokens,
    payloads: { x: row('bf16', hidden) },
    output: row('bf16', hidden),
  });

  const topkIds = Int32Array.from({ length: tokens * topK }, (_, i) => (3 * i + rank) % experts);
  const topkWeights = new Float32Array(tokens * topK).fill(1);
  const rows = new Float32Array(tokens * hidden).fill(1 + rank);
  const x = tensorFrom(device, stream, rows, 'bf16', [tokens, hidden]);
  const out = emptyTensor(device, 'bf16', [tokens, hidden]);

  const received = ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
  stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
  ep.combine(out, stream);
  await ep.synchronize(stream);

  // The experts gave every row back as it is, so what comes home counts the ranks that had it.
  const visited = (await read(out, stream))[0]! / (1 + rank);
  console.log(`rank ${rank} of ${ranks}: its first token was at ${visited} of them`);
  await ep.dispose();
});
