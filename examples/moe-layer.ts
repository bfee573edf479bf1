/**
 * A whole Mixture-of-Experts layer: router, dispatch, experts, combine and a shared expert. On 2 GPUs of this machine, or on as many simulated ones.
 */
import { emptyTensor, MoeLayer, type MoeModel, read, tensorFrom, World } from 'heddle';

const model: MoeModel = {
  ...{ hidden: 64, experts: 8, topK: 2, inner: 64, sharedInner: 64 },
  routing: { scores: 'sigmoid', normalise: true, scale: 2.5 },
};
const { hidden, inner, experts } = model;
const [ranks, tokens] = [2, 6];

/** Numbers that look random and are the same everywhere. */
const numbers = (length: number, seed: number, most: number): Float32Array =>
  Float32Array.from({ length }, (_, i) => Math.sin(seed + i * 12.9898) * most);

export const results = await World.local({ ranks }, async (world) => {
  const { device, rank } = world;
  const stream = device.createStream();
  const weights = (seed: number, shape: readonly number[]) => {
    const length = shape.reduce((product, n) => product * n, 1);
    return tensorFrom(device, stream, numbers(length, seed, 0.2), 'bf16', shape);
  };
  const here = experts / ranks;

  const layer = await MoeLayer.create(world, {
    model,
    maxTokens: tokens,
    experts: {
      gateUp: weights(rank, [here, 2 * inner, hidden]),
      down: weights(10 + rank, [here, hidden, inner]),
    },
    sharedExperts: { gateUp: weights(20, [2 * inner, hidden]), down: weights(21, [hidden, inner]) },
    router: { weights: weights(30, [experts, hidden]) },
  });
  if (rank === 0) console.log(`carried by ${layer.family}: ${layer.why}`);

  const x = tensorFrom(device, stream, numbers(tokens * hidden, 40 + rank, 1), 'bf16', [tokens, hidden]);
  const out = emptyTensor(device, 'bf16', [tokens, hidden]);
  layer.forward(x, out, stream); // enqueues, and waits for nothing
  await layer.synchronize(stream);
  const [first] = await read(out, stream);
  await layer.dispose();
  return first!;
});

for (const [rank, first] of results.entries()) console.log(`rank ${rank}: its first value is ${first}`);
