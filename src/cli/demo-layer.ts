/** `heddle demo --layer`: a whole layer in two ways, beside plain code. */

import { SimMachine } from '../gpu/sim/index.js';
import { emptyTensor, MoeLayer, type MoeLayerOptions, readBits, tensorFrom } from '../moe/index.js';
import {
  type MoeModel,
  payloadsFor,
  profiles,
  scaleBlock,
  traffic,
  withExperts,
} from '../moe/layer/index.js';
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
import type { DemoResult } from './print-demo.js';

export interface DemoSizes {
  readonly ranks: number;
  readonly nodes: number;
  readonly tokens: number;
  readonly hidden: number;
  readonly experts: number;
  readonly topk: number;
  readonly seed: number;
  /** How dispatch carries rows. With fp8, the weights are e4m3 with scales, too. */
  readonly rows: 'bf16' | 'fp8';
}

/** DeepSeek-V3's layer, in small. */
export function layerModel({ hidden, experts, topk, rows }: DemoSizes): MoeModel {
  const inner = layerUnit(rows);
  return {
    ...withExperts(profiles.deepseek_v3, experts, topk),
    ...{ hidden, inner, sharedInner: inner },
  };
}
/** The number of which rows must be a multiple, and elements between the GEMMs of an expert. */
export const layerUnit = (rows: DemoSizes['rows']): number => (rows === 'fp8' ? scaleBlock : 64);

/** First one phase after another, then in two micro-batches, on the simulated machine in another order. */
export async function demoLayer(
  sizes: DemoSizes,
  simulated: boolean,
  progress: (what: string) => void,
): Promise<DemoResult & { readonly layer: object }> {
  const started = performance.now();
  const { ranks, nodes, tokens, seed, rows } = sizes;
  const model = layerModel(sizes);
  const inputs = makeLayer(model, new Array<number>(ranks).fill(tokens), seed, rows);
  progress('router, dispatch, experts, combine …');
  const first = await runOnce(inputs, { nodes, tokens, simulated }, 'in-order', {
    ...{ rows, overlap: false },
  });
  const microBatches = tokens < 2 ? 1 : 2;
  const again = microBatches === 1 ? 'with the shared expert beside the others' : 'in two micro-batches';
  progress(`the same again, ${again} …`);
  const second = await runOnce(inputs, { nodes, tokens, simulated }, 'random', { rows, microBatches });
  progress('comparing with plain code …');
  const { hidden, inner, experts, topK } = model;
  const shape = {
    ...shapeOfRounds({ ranks, experts, topK, maxTokens: tokens, hidden, dtype: 'bf16' }),
    payloads: payloadsFor(rows, hidden),
  };
  const seconds = Math.round((performance.now() - started) / 10) / 100;
  const { family, why } = first[0]!;
  const outs = first.map(({ out }) => out);
  return {
    // `layer` is printed as JSON beside the figures of a round.
    ...{ shape, nodes, simulated, seconds, layer: { inner, family, why } },
    about: [
      `rows of ${hidden}${rows === 'fp8' ? ': fp8 out, bf16 back' : ` ${rows}`}; experts with an inner width of ${inner}${rows === 'fp8' ? ' and fp8 weights' : ''}; one shared expert; router, dispatch, experts, combine: twice, in ${seconds.toFixed(1)} s`,
      `carried by ${family}: ${why}`,
    ],
    says: {
      right: 'as plain code makes them, but for rounding',
      repeatable: `${again} the bits are the same`,
      notRepeatable: `${again} the bits are others`,
    },
    traffic: traffic(
      shape,
      inputs.routed.map((routed) => ({ tokens, topkIds: expectedRoutes(routed).topkIds })),
      nodes,
    ),
    comparison: compareLayer(hidden, outs, plainLayer(inputs, rows)),
    bitwiseRepeatable: outs.every(
      (out, rank) => compareBits('out', 'bf16', second[rank]!.out, out).different === 0,
    ),
    lines: 'a rank’s first line is its shared expert, each other line a micro-batch',
    ...{ picture: 'One forward', spans: second.flatMap(({ spans }) => spans) },
  };
}

function runOnce(
  inputs: LayerInputs,
  { nodes, tokens, simulated }: Pick<DemoSizes, 'nodes' | 'tokens'> & { readonly simulated: boolean },
  schedule: 'in-order' | 'random',
  how: Pick<MoeLayerOptions, 'rows' | 'overlap' | 'microBatches'>,
) {
  const ranks = inputs.routed.length;
  const device = simulated
    ? { device: 'sim' as const, sim: SimMachine.create({ ranks, schedule }) }
    : { device: 'cuda' as const };
  return World.local({ ranks, nodes, ...device }, (world) =>
    runRank(world, inputs, { maxTokens: tokens, ...how }),
  );
}

/** One rank's layer: all that a user of Heddle has to write, and a clock. */
async function runRank(
  world: World,
  inputs: LayerInputs,
  how: Omit<MoeLayerOptions, 'model' | 'experts' | 'router'>,
) {
  const { device, rank } = world;
  const stream = device.createStream();
  const { model } = inputs;
  const layer = await MoeLayer.create(world, { model, ...placeWeights(world, stream, inputs), ...how });
  const rows = inputs.routed[rank]!.x;
  const x = tensorFrom(device, stream, rows, 'bf16', [how.maxTokens, model.hidden]);
  const out = emptyTensor(device, 'bf16', x.shape);

  // The first forward on GPUs also loads the kernels.
  if (device.kind === 'cuda') layer.forward(x, out, stream);
  const clock = new Clock(device);
  clock.watch(stream, () => layer.forward(x, out, stream));
  await layer.synchronize(stream);

  const { family, why } = layer;
  const spans = clock.stop(rank);
  const result = { family, why, out: await readBits(out, stream), spans };
  await layer.dispose();
  return result;
}
