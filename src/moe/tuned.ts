/**
 * Tunings that were measured: by `heddle tune` on this machine, or shipped with Heddle. Where neither knows the
 * shape, tuning.ts has rules.
 */
import { existsSync } from 'node:fs';
import type { Device } from '../device/index.js';
import type { Shape } from './shape.js';
import { combineRowBytes, dispatchRowBytes } from './traffic.js';
import { tunedH200 } from './tuned-h200.js';
import type { Tuning } from './tuning.js';
import { readTuning, type TunedShape, tuningPath } from './tuning-file.js';

/**
 * What was measured for a shape like this on a GPU like this; null where nothing was.
 * @throws ArgumentError where the machine's file is there and damaged.
 */
export function tunedFor(shape: Shape, device: Device): Tuning | null {
  if (device.kind === 'sim') return null;
  const { model } = device;
  const path = tuningPath();
  if (existsSync(path)) {
    const own = nearest(shape, model, readTuning(path).shapes);
    if (own !== null) return own;
  }
  return nearest(shape, model, tunedH200.shapes);
}

/** Farther apart than this (in doublings) two shapes are not alike. Tuning doubles the tokens from shape to shape. */
const mostDoublings = 0.5;

/** The tuning of the most similar shape of the same GPU and as many ranks. */
export function nearest(shape: Shape, gpu: string, shapes: readonly TunedShape[]): Tuning | null {
  let best: TunedShape | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const known of shapes) {
    if (known.gpu !== gpu || known.ranks !== shape.ranks) continue;
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
