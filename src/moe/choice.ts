/** Which family carries a layer, and how its kernels are spread. */
import type { Device } from '../device/index.js';
import {
  type Family,
  families,
  familyNamed,
  type Place,
  requireKnobs,
  type Tuning,
} from '../kernels/index.js';
import type { Layer } from '../layer/index.js';
import { tunedFor } from '../tuning/index.js';
import type { ExpertParallelOptions } from './options.js';

export interface Choice {
  readonly family: Family;
  readonly tuning: Tuning;
}

/**
 * What was asked for, measured, or else the rules of thumb.
 * @throws why, where the family, or every family, refuses the layer or the tuning.
 */
export function choose(
  layer: Layer,
  place: Place,
  device: Pick<Device, 'kind' | 'model'>,
  { family: name, tuning }: Pick<ExpertParallelOptions, 'family' | 'tuning'>,
): Choice {
  const family = name === undefined ? firstThatCan(layer, place) : familyNamed(name);
  if (tuning !== undefined) requireKnobs(family.knobs, tuning);
  const refusal = family.refuses(layer, place, tuning);
  if (refusal !== null) throw refusal;
  if (tuning !== undefined) return { family, tuning };
  const measured = tunedFor(family, layer, device);
  return {
    family,
    tuning: measured === null ? family.defaults(layer, place) : family.adapt(measured, layer, place),
  };
}

/** Where none can, the first that reaches all ranks: it will say why. */
const firstThatCan = (layer: Layer, place: Place): Family =>
  families.find((family) => family.refuses(layer, place) === null) ??
  families.find(({ reach }) => reach === 'world' || place.topology.nodes === 1)!;
