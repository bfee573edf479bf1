/** Tunings that were measured: by `heddle tune` on this machine, or shipped with Heddle. */

import { warnOnce } from '../../base/files/index.js';
import type { Device } from '../../gpu/index.js';
import type { Family, Tuning } from '../families/index.js';
import { combineRowBytes, dispatchRowBytes, type Shape } from '../layer/index.js';
import { shippedTunings, type TunedShape, tunedIn, tuningPath } from './file.js';

/** What was measured for a shape like this, with this family, on a GPU like this; null where nothing was. */
export function tunedFor(
  family: Pick<Family, 'name'>,
  shape: Shape,
  device: Pick<Device, 'kind' | 'model'>,
): Tuning | null {
  if (device.kind === 'sim') return null;
  const here = { family: family.name, gpu: device.model };
  return nearest(shape, here, ownShapes()) ?? nearest(shape, here, shippedTunings.shapes);
}

/** What `heddle tune` found here. A file that cannot be used costs time, not results. */
function ownShapes(): readonly TunedShape[] {
  try {
    return tunedIn(tuningPath());
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    warnOnce('HEDDLE_TUNING', `what was tuned here is not used: ${reason}`);
    return [];
  }
}

/** Farther apart than this (in doublings) two shapes are not alike. Tuning doubles the tokens from shape to shape. */
const mostDoublings = 0.5;

/** The tuning of the most similar shape of the same family, GPU and as many ranks. */
export function nearest(
  shape: Shape,
  { family, gpu }: Pick<TunedShape, 'family' | 'gpu'>,
  shapes: readonly TunedShape[],
): Tuning | null {
  let best: TunedShape | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const known of shapes) {
    if (known.family !== family || known.gpu !== gpu || known.ranks !== shape.ranks) continue;
    const tokens = doublings(known.maxTokens, shape.maxTokens);
    const dispatch = doublings(known.dispatchBytes, dispatchRowBytes(shape));
    const combine = doublings(known.combineBytes, combineRowBytes(shape));
    if (Math.max(tokens, dispatch, combine) > mostDoublings) continue;
    const distance = tokens + dispatch + combine + doublings(known.topK, shape.topK) / 4;
    if (distance < least) {
      least = distance;
      best = known;
    }
  }
  return best?.tuning ?? null;
}

const doublings = (a: number, b: number): number => Math.abs(Math.log2(a / b));
