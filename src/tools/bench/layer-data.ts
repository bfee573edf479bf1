/** A model's layer with random weights, as large as asked for, and what its ranks bring. */

import { emptyTensor, type OwnedTensor, type Tensor, tensorFrom } from '../../moe/index.js';
import { type MoeModel, profile, withExperts } from '../../moe/layer/index.js';
import { random } from '../../verify/testing/index.js';
import { layerWeights, type WeightsPart } from '../../verify/trials/index.js';
import type { Rig } from './harness.js';
import { createNoise, scaleOfNoise } from './inputs.js';

/** A model with rows so short that its layer can be simulated. */
export function inSmall({ sharedInner, ...model }: MoeModel, length = 64): MoeModel {
  return {
    ...model,
    hidden: length,
    inner: length,
    ...(sharedInner !== undefined && { sharedInner: length }),
  };
}

/** The model, with so many experts on each of the ranks instead of its own. */
export function modelWith(name: string, ranks: number, expertsHere: number | null): MoeModel {
  const model = profile(name);
  if (expertsHere === null) return model;
  const experts = expertsHere * ranks;
  return withExperts(model, experts, Math.min(model.topK, experts));
}

export type LayerData = ReturnType<typeof createLayerData>;

export function createLayerData(
  { timing, noise }: Rig,
  model: MoeModel,
  seed: number,
  dtypeOfWeights: 'bf16' | 'fp8',
) {
  const { world, stream } = timing;
  const { device } = world;
  const { hidden, experts } = model;
  const owned: OwnedTensor[] = [];
  const own = (tensor: OwnedTensor): Tensor => {
    owned.push(tensor);
    return tensor;
  };
  const dtype = dtypeOfWeights === 'fp8' ? 'e4m3' : 'bf16';
  const values = dtype === 'e4m3' ? createNoise(device, stream, seed, dtype) : noise;
  const part = (name: WeightsPart, shape: readonly number[]): Tensor => {
    if (name === 'gateUpScales' || name === 'downScales') {
      const all = new Float32Array(shape.reduce((a, b) => a * b)).fill(scaleOfNoise);
      return own(tensorFrom(device, stream, all, 'f32', shape, 'scales of weights'));
    }
    const tensor = own(emptyTensor(device, dtype, shape, 'weights'));
    values.fill(stream, tensor.data, tensor.bytes);
    return tensor;
  };
  // Logits of about ±2: what is chosen varies from token to token.
  const draw = random(seed, 17);
  const rows = Float32Array.from(
    { length: experts * hidden },
    () => ((2 * draw.uniform() - 1) * 3) / Math.sqrt(hidden),
  );
  const router = own(tensorFrom(device, stream, rows, 'bf16', [experts, hidden], 'router'));
  const weights = layerWeights(
    model,
    world,
    (_, name, shape) => part(name, shape),
    { weights: router },
    dtype,
  );
  const free = (): void => {
    for (const tensor of owned) tensor.free();
  };
  return { model, weights, free };
}
