/** A whole layer with weights from a seed, as one of its ranks runs it. */
import type { Stream } from '../../src/gpu/index.js';
import {
  type ForwardOptions,
  ModelFiles,
  MoeLayer,
  type MoeLayerOptions,
  type MoeLayerWeights,
  readBits,
} from '../../src/moe/index.js';
import type { World } from '../../src/net/world/index.js';
import { type LayerInputs, placeRows, placeWeights } from './whole-layer.js';

export type LayerRun = Awaited<ReturnType<typeof runLayer>>;

/** Runs a layer as one rank, so often back to back; with `graph` what is captured once. */
export async function runLayer(
  world: World,
  inputs: LayerInputs,
  { chunks = 1, ...options }: Omit<MoeLayerOptions, 'model' | keyof MoeLayerWeights> & ForwardOptions,
  { times = 1, graph = false } = {},
) {
  const stream = world.device.createStream();
  const weights = placeWeights(world, stream, inputs, options.placement);
  const layer = await MoeLayer.create(world, { model: inputs.model, ...weights, ...options });
  const { x, out } = placeRows(world, stream, inputs);
  if (graph) stream.beginCapture();
  layer.forward(x, out, stream, { chunks });
  const captured = graph ? stream.endCapture() : null;
  for (let n = 1; n < times; n++)
    captured ? captured.launch(stream) : layer.forward(x, out, stream, { chunks });
  captured?.launch(stream);
  await layer.synchronize(stream);
  const result = await readBits(out, stream);
  captured?.dispose();
  await layer.dispose();
  // The rows that this rank gets: [tokens, hidden].
  return { layer, out: result };
}

/** The weights of a model's first layer, which has no shared expert, from its files. */
export async function routedFromFiles(
  folder: string,
  world: World,
  stream: Stream,
  mxfp4: 'keep' | 'bf16' = 'bf16',
) {
  const files = await ModelFiles.open(folder);
  const which = { layer: 0 };
  return {
    experts: await files.loadExperts(world, stream, { ...which, mxfp4 }),
    router: await files.loadRouter(world, stream, which),
  };
}
