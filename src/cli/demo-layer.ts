/** `heddle demo --layer`: a whole layer in two ways, beside plain code. */

import { SimMachine } from '../gpu/sim/index.js';
import { emptyTensor, MoeLayer, type MoeLayerOptions, readBits, tensorFrom } from '../moe/index.js';
import { type MoeModel, payloadsFor, profiles, traffic, withExperts } from '../moe/layer/index.js';
import { World } from '../net/world/index.js';
import { Clock } from '../tools/bench/index.js';
import { compareBits, shapeOfRounds } from '../verify/testing/index.js';
import {
  compareLayer,
  expectedRoutes,
  type LayerInputs,
  makeLayer,
  placeWeights,
  plainLayer,
} from '../verify/trials/index.js';
import { barsOf, type DemoResult } from './print-demo.js';

const [ranks, tokens, hidden, inner] = [4, 6, 128, 64] as const;

/** DeepSeek-V3's layer, in small: its experts are what takes the time. */
const model: MoeModel = {
  ...withExperts(profiles.deepseek_v3, 16, 4),
  ...{ hidden, inner, sharedInner: inner },
};

/** First one phase after another, then in two micro-batches, on the simulated machine in another order. */
export async function demoLayer(
  seed: number,
  progress: (what: string) => void,
): Promise<DemoResult & { readonly layer: object }> {
  const started = performance.now();
  const inputs = makeLayer(model, new Array<number>(ranks).fill(tokens), seed, 'bf16');
  progress('router, dispatch, experts, combine …');
  const first = await runOnce(inputs, 'in-order', { overlap: false });
  progress('the same again, in two micro-batches …');
  const second = await runOnce(inputs, 'random', { microBatches: 2 });
  progress('comparing with plain code …');
  const { experts, topK } = model;
  const shape = {
    ...shapeOfRounds({ ranks, experts, topK, maxTokens: tokens, hidden, dtype: 'bf16' }),
    payloads: payloadsFor('bf16', hidden),
  };
  const seconds = Math.round((performance.now() - started) / 10) / 100;
  const { family, why } = first[0]!;
  const outs = first.map(({ out }) => out);
  return {
    // `layer` is printed as JSON beside the figures of a round.
    ...{ shape, nodes: 1, simulated: true, seconds, layer: { inner, family, why } },
    about: [
      `rows of ${hidden} bf16, experts of ${inner}, a shared one; router, dispatch, experts, combine: twice, in ${seconds.toFixed(1)} s`,
      `carried by ${family}: ${why}`,
    ],
    says: {
      right: 'as plain code makes them, but for rounding',
      repeatable: 'in two micro-batches the bits are the same',
      notRepeatable: 'in two micro-batches the bits are others',
    },
    traffic: traffic(
      shape,
      inputs.routed.map((routed) => ({ tokens, topkIds: expectedRoutes(routed).topkIds })),
    ),
    comparison: compareLayer(hidden, outs, plainLayer(inputs, 'bf16')),
    bitwiseRepeatable: outs.every(
      (out, rank) => compareBits('out', 'bf16', second[rank]!.out, out).different === 0,
    ),
    ...{ picture: 'One forward', spans: second.flatMap(({ spans }) => spans) },
  };
}

const runOnce = (
  inputs: LayerInputs,
  schedule: 'in-order' | 'random',
  how: Pick<MoeLayerOptions, 'overlap' | 'microBatches'>,
) =>
  World.local({ ranks, device: 'sim', sim: SimMachine.create({ ranks, schedule }) }, (world) =>
    runRank(world, inputs, how),
  );

/** One rank's layer: all that a user of Heddle has to write, and a clock. */
async function runRank(
  world: World,
  inputs: LayerInputs,
  how: Pick<MoeLayerOptions, 'overlap' | 'microBatches'>,
) {
  const { device, rank } = world;
  const stream = device.createStream();
  const layer = await MoeLayer.create(world, {
    ...{ model, ...placeWeights(world, stream, inputs), maxTokens: tokens, ...how },
  });
  const x = tensorFrom(device, stream, inputs.routed[rank]!.x, 'bf16', [tokens, hidden]);
  const out = emptyTensor(device, 'bf16', x.shape);

  const clock = new Clock(device);
  clock.watch(stream, () => layer.forward(x, out, stream));
  await layer.synchronize(stream);

  const { family, why } = layer;
  // A step of the simulated machine is a nanosecond of its clock.
  const result = { family, why, out: await readBits(out, stream), spans: barsOf(clock.stop(rank), 1000) };
  await layer.dispose();
  return result;
}
