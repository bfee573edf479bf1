/** All layers of a small DeepSeek-V3 and a small gpt-oss, as examples/whole-model.ts runs them, each beside the reference. */
import { describe, expect, test } from 'vitest';
import { runModel } from '../../../examples/whole-model.js';
import type { Stream } from '../../../src/gpu/index.js';
import { ModelFiles, readBits, type Tensor } from '../../../src/moe/index.js';
import { type Bits, fromF32, type MlpMatrices, type MoeModel, toF32 } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import { makeRouted } from '../../../src/verify/trials/index.js';
import { deep, gptOss } from '../layers.js';
import { compareLayer, type LayerInputs, plainLayer } from '../whole-layer.js';
import { deepseek, drawn, expertOf, folderWith, layerOf, type StoredModel, sharded } from './files.js';
import { mxfp4Layer } from './mxfp4-layer.js';

const ranks = 2;
const tokens = [3, 2];

/** A dense layer, then two of experts, as DeepSeek-V3 names them. */
function deepseekFiles({ hidden, experts, inner, sharedInner }: MoeModel): StoredModel {
  const layers = [1, 2].map((n): StoredModel => {
    const prefix = `model.layers.${n}.mlp.`;
    return {
      ...layerOf({ ...deepseek, prefix }, experts, [inner, hidden], 10 * n),
      ...expertOf(deepseek, `${prefix}shared_experts.`, [sharedInner!, hidden], 100 + n),
      [`${prefix}gate.weight`]: drawn('BF16', [experts, hidden], 200 + n),
      [`${prefix}gate.e_score_correction_bias`]: drawn('F32', [experts], 300 + n),
    };
  });
  return Object.assign(expertOf(deepseek, 'model.layers.0.mlp.', [inner, hidden], 400), ...layers);
}

const gptOssFiles = ({ experts, hidden, inner }: MoeModel): StoredModel =>
  Object.assign({}, ...[0, 1].map((n) => mxfp4Layer(n, { experts, hidden, inner }, 20 * n)));

/** The weights of a layer as one rank that has all experts reads them, for the reference. */
async function inputsOf(folder: string, model: MoeModel, layer: number): Promise<LayerInputs> {
  const [inputs] = await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const stream = world.device.createStream();
    const files = await ModelFiles.open(folder);
    const shared = files.layers.find((one) => one.layer === layer)!.shared;
    const experts = await matricesOf(
      await files.loadExperts(world, stream, { layer }),
      stream,
      model.experts,
    );
    const one = shared
      ? await matricesOf(await files.loadShared(world, stream, { layer }), stream, 1)
      : [null];
    const router = await files.loadRouter(world, stream, { layer });
    const [weights, bias, correction] = await Promise.all(
      [router.weights, router.bias, router.correction].map(
        async (tensor) => tensor && toF32(tensor.dtype as 'bf16' | 'f32', await readBits(tensor, stream)),
      ),
    );
    const all = makeRouted({ model, tokens: tokens[0]! + tokens[1]!, seed: 5 });
    const routed = tokens.map((own, rank) => {
      const start = rank === 0 ? 0 : tokens[0]! * model.hidden;
      const x = all.x.slice(start, start + own * model.hidden);
      return { ...all, weights: weights!, ...(bias && { bias }), ...(correction && { correction }), x };
    });
    return { model, experts, shared: one[0]!, routed };
  });
  return inputs!;
}

async function matricesOf(
  weights: Awaited<ReturnType<ModelFiles['loadExperts']>>,
  stream: Stream,
  count: number,
): Promise<MlpMatrices[]> {
  const { activation, free: _, ...tensors } = weights;
  const parts = await Promise.all(
    Object.entries<Tensor>(tensors).map(
      async ([name, tensor]) => [name, await readBits(tensor, stream)] as const,
    ),
  );
  const part = (bits: Bits, e: number) =>
    bits.slice((e * bits.length) / count, ((e + 1) * bits.length) / count);
  return Array.from({ length: count }, (_, e) => ({
    ...Object.fromEntries(parts.map(([name, bits]) => [name, part(bits, e)])),
    ...(activation && { activation }),
  })) as unknown as MlpMatrices[];
}

describe('every layer of a model from files makes what the reference makes', () => {
  const scaled = { ...deep, hidden: 128, inner: 128, sharedInner: 128 };
  test.each<[string, MoeModel, StoredModel, 'fp8'?]>([
    ['DeepSeek-V3, whose weights are e4m3', scaled, deepseekFiles(scaled), 'fp8'],
    ['gpt-oss', { ...gptOss, experts: 5 }, gptOssFiles({ ...gptOss, experts: 5 })],
  ])('%s', async (_, model, stored, rows) => {
    const folder = folderWith(sharded(stored));
    const { layers } = await ModelFiles.open(folder);
    const inputs = await Promise.all(layers.map(({ layer }) => inputsOf(folder, model, layer)));
    const made = await World.local({ ranks, device: 'sim' }, (world) =>
      runModel(world, folder, model, () => inputs[0]!.routed[world.rank]!.x),
    );
    for (const [n, layer] of inputs.entries()) {
      const outs = made.map((rank) => fromF32('bf16', Float32Array.from(rank[n]!)));
      expect(compareLayer(model.hidden, outs, plainLayer(layer, rows)), `layer ${n}`).toMatchObject({
        different: 0,
      });
      // The other layer's weights would give something else.
      const other = plainLayer(inputs[1 - n]!, rows);
      expect(compareLayer(model.hidden, outs, other).different, `layer ${n}`).toBeGreaterThan(0);
    }
  });
});
