/** Layers of a model over one set of buffers, beside one layer with buffers of its own; and what creating them takes. */
import { LayerBuffers, MoeLayer, type MoeLayerWeights, readBits } from '../../moe/index.js';
import { layerInWords } from './columns.js';
import { type Rig, tensorsOf } from './inputs.js';
import { createLayerData, type LayersPlan, modelFor, saidOf } from './layer-data.js';
import { type Bench, requireClose, type Tell } from './run.js';
import type { Spread } from './statistics.js';

export interface ModelBenchPlan extends LayersPlan {
  readonly nodes: number;
  readonly layers: number;
  /** The most tokens of a round; null for as many as a forward has. */
  readonly maxTokens: number | null;
  readonly rounds: 1 | 2;
}

interface ModelPoint {
  readonly tokens: number;
  readonly chunks: number;
  /** µs of a layer with buffers of its own, which takes all tokens in one round. */
  readonly own: Spread;
  /** µs of a layer over the set, in a graph of all layers. */
  readonly shared: Spread;
  readonly overOwn: number;
  readonly buffersBytes: number;
  /** What the host takes to create the set, and a further layer (the median), in ms. */
  readonly createSetMs: number;
  readonly createLayerMs: number;
}

type ModelMembers = ReturnType<typeof saidOf> & Pick<ModelBenchPlan, 'layers'>;

const milliseconds = async <T>(make: () => Promise<T>): Promise<readonly [T, number]> => {
  const start = performance.now();
  const made = await make();
  return [made, performance.now() - start];
};

/** All layers have the same weights: then one with buffers of its own reads as much, and only the buffers differ. */
async function measure(
  rig: Rig,
  plan: ModelBenchPlan,
  weights: MoeLayerWeights,
  tokens: number,
  tell: Tell<ModelPoint>,
): Promise<ModelPoint> {
  const { timing } = rig;
  const { world, stream } = timing;
  const { layers, rounds, rows, family } = plan;
  const model = modelFor(plan);
  const maxTokens = plan.maxTokens ?? tokens;
  const chunks = Math.ceil(tokens / maxTokens);
  const tensors = tensorsOf(rig, 1);
  const shape = [tokens, model.hidden];
  const [x, out] = [tensors.rows(shape), tensors.empty('bf16', shape)];
  const how = { model, rows, ...(family !== undefined && { family }) };

  const alone = await MoeLayer.create(world, { ...how, ...weights, maxTokens: tokens });
  const own = await timing.time(layers, [() => alone.forward(x, out, stream)]);
  await alone.synchronize(stream);
  const wanted = await readBits(out, stream);
  await alone.dispose();

  const [buffers, createSetMs] = await milliseconds(() =>
    LayerBuffers.create(world, { ...how, weights: plan.weights, maxTokens, rounds }),
  );
  const made: MoeLayer[] = [];
  const took: number[] = [];
  for (let n = 0; n < layers; n++) {
    const [layer, ms] = await milliseconds(() => MoeLayer.create(world, { buffers, ...weights }));
    made.push(layer);
    took.push(ms);
  }
  const shared = await timing.time(layers, [(n) => made[n]!.forward(x, out, stream, { chunks })]);
  await buffers.synchronize(stream);
  // Chunks may have so few rows that blocks share sums, which are then added in another order.
  const different = `a layer of ${tokens} tokens gives other results over a shared set`;
  requireClose(different, 'bf16', await readBits(out, stream), wanted, 2 ** -6);
  await tell.trace(() => made[0]!.forward(x, out, stream, { chunks }));
  for (const layer of made) await layer.dispose();
  await buffers.dispose();
  tensors.free();
  const [, ...further] = took.toSorted((a, b) => a - b);
  return {
    ...{ tokens, chunks, own, shared, overOwn: shared.median / own.median, createSetMs },
    ...{
      buffersBytes: buffers.memory.bytes,
      createLayerMs: further[Math.floor(further.length / 2)] ?? took[0]!,
    },
  };
}

/** @throws UnavailableError without enough GPUs, HeddleError where layers over a set give other results. */
export const modelBench: Bench<ModelBenchPlan, ModelPoint, ModelMembers> = {
  format: 'heddle-bench-model/1',
  setting: ({ ranks, nodes }) => ({ ranks, nodes }),
  members: (plan) => ({ ...saidOf(plan), layers: plan.layers }),
  async measure(rig, plan, tell) {
    const data = createLayerData(rig, plan);
    for (const tokens of plan.tokens) {
      tell.doing(`${tokens} tokens`);
      tell.point(await measure(rig, plan, data.weights, tokens, tell));
    }
    data.free();
  },
  heading: ({ model, ranks, layers, rows, weights }) =>
    `${layerInWords({ ...model, ranks })}; ${layers} layers over one set, rows ${rows}, weights ${weights}`,
  columns: () => [
    { head: 'tokens', cell: ({ tokens }) => String(tokens) },
    { head: 'chunks', cell: ({ chunks }) => String(chunks) },
    { head: 'own', cell: ({ own }) => own.median.toFixed(1) },
    { head: 'shared', cell: ({ shared }) => shared.median.toFixed(1) },
    { head: '÷ own', cell: ({ overOwn }) => overOwn.toFixed(3) },
    { head: 'buffers MiB', cell: ({ buffersBytes }) => (buffersBytes / 2 ** 20).toFixed(1) },
    { head: 'set ms', cell: ({ createSetMs }) => createSetMs.toFixed(1) },
    { head: 'a layer ms', cell: ({ createLayerMs }) => createLayerMs.toFixed(2) },
  ],
  lines: (point) => [point],
};
