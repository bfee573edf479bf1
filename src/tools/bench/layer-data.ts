/** A model's layer with random weights, as large as asked for, and what its ranks bring. */

import type { LayerWeightsType } from '../../moe/index.js';
import { type MoeModel, profile, scaleBlock, withExperts } from '../../moe/layer/index.js';
import { random } from '../../verify/testing/index.js';
import { layerWeights } from '../../verify/trials/index.js';
import { type Rig, storedAs, tensorsOf } from './inputs.js';

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

/** The model that is measured; on simulated machines with short rows. */
export const modelFor = (plan: {
  readonly profile: string;
  readonly ranks: number;
  readonly expertsHere: number | null;
  readonly device: 'cuda' | 'sim';
  readonly rows: 'bf16' | 'fp8';
}): MoeModel => {
  const { profile, ranks, expertsHere, device, rows } = plan;
  if (device === 'cuda') return modelWith(profile, ranks, expertsHere);
  return inSmall(modelWith(profile, ranks, expertsHere ?? 4), rows === 'fp8' ? scaleBlock : 64);
};

export type LayerData = ReturnType<typeof createLayerData>;

export function createLayerData(rig: Rig, model: MoeModel, seed: number, weightsType: LayerWeightsType) {
  const { hidden, experts } = model;
  const tensors = tensorsOf(rig, seed);
  const dtype = storedAs[weightsType];
  // Logits of about ±2: what is chosen varies from token to token.
  const draw = random(seed, 17);
  const rows = Float32Array.from(
    { length: experts * hidden },
    () => ((2 * draw.uniform() - 1) * 3) / Math.sqrt(hidden),
  );
  const router = tensors.from(rows, 'bf16', [experts, hidden], 'router');
  const weights = layerWeights(
    model,
    rig.timing.world,
    (_, part, shape) => tensors.weights(part, shape, dtype),
    { weights: router },
    dtype,
  );
  return { model, weights, free: tensors.free };
}
