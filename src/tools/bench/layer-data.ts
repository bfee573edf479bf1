/** A model's layer with random weights, as large as asked for, and what its ranks bring. */

import type { LayerWeightsType } from '../../moe/index.js';
import { type MoeModel, profile, scaleBlock, withExperts } from '../../moe/layer/index.js';
import { random } from '../../verify/testing/index.js';
import { layerWeights } from '../../verify/trials/index.js';
import { type Rig, storedAs, tensorsOf } from './inputs.js';
import type { Measuring } from './run.js';

/** The plan of a benchmark of whole layers. */
export interface LayersPlan extends Measuring {
  readonly profile: string;
  readonly ranks: number;
  /** Experts on each rank, instead of the model's. */
  readonly expertsHere: number | null;
  readonly tokens: readonly number[];
  readonly family?: string;
  readonly rows: 'bf16' | 'fp8';
  /** The type of the experts' weights. With fp8 they are e4m3 with scales, and rows travel as e4m3 too. */
  readonly weights: LayerWeightsType;
}

/** What the reports of these benchmarks say of it. */
export const saidOf = ({ iterations, ranks, rows, weights, ...plan }: LayersPlan) => ({
  ...{ iterations, ranks, rows, weights },
  model: { ...modelFor({ ranks, rows, ...plan }), name: plan.profile },
});

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
export function modelFor(
  of: Pick<LayersPlan, 'profile' | 'ranks' | 'expertsHere' | 'device' | 'rows'>,
): MoeModel {
  const { profile, ranks, expertsHere, device, rows } = of;
  if (device === 'cuda') return modelWith(profile, ranks, expertsHere);
  return inSmall(modelWith(profile, ranks, expertsHere ?? 4), rows === 'fp8' ? scaleBlock : 64);
}

export type LayerData = ReturnType<typeof createLayerData>;

export function createLayerData(rig: Rig, plan: LayersPlan) {
  const seed = 1;
  const model = modelFor(plan);
  const { hidden, experts } = model;
  const tensors = tensorsOf(rig, seed);
  const dtype = storedAs[plan.weights];
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
