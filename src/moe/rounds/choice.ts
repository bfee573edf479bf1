/** Which family carries a layer, and how its kernels are spread. */
import type { Device } from '../../gpu/index.js';
import {
  type Family,
  families,
  familyNamed,
  type PlanTarget,
  refusalOf,
  requireKnobs,
  type Tuning,
} from '../families/index.js';
import type { Layer } from '../layer/index.js';
import type { ExpertParallelOptions } from './options.js';
import { tunedFor } from './tuned.js';

export interface Choice {
  readonly family: Family;
  /** Why this family. */
  readonly why: string;
  readonly tuning: Tuning;
}

/**
 * The choice that was asked for, measured, or else the rules of thumb.
 * @throws why, where the family, or every family, refuses the layer or the tuning.
 */
export function choose(
  layer: Layer,
  target: PlanTarget,
  device: Pick<Device, 'kind' | 'model'>,
  { family: name, tuning }: Pick<ExpertParallelOptions, 'family' | 'tuning'>,
): Choice {
  const { family, why } =
    name === undefined ? firstThatCan(layer, target) : { family: familyNamed(name), why: 'asked for' };
  if (tuning !== undefined) requireKnobs(family.knobs, tuning);
  const refusal = refusalOf(family, layer, target, tuning);
  if (refusal !== null) throw refusal;
  if (tuning !== undefined) return { family, why, tuning };
  const measured = tunedFor(family, layer, device);
  return {
    ...{ family, why },
    tuning: measured === null ? family.defaults(layer, target) : family.adapt(measured, layer, target),
  };
}

/**
 * The first family that can carry the layer. If none can, the first that reaches all ranks, whose refusal says why.
 */
function firstThatCan(layer: Layer, target: PlanTarget): Omit<Choice, 'tuning'> {
  const { nodes } = target.topology;
  const where = `${layer.ranks} ranks of ${nodes === 1 ? 'one node' : `${nodes} nodes`}`;
  const refusals: string[] = [];
  for (const family of families) {
    const refusal = refusalOf(family, layer, target);
    if (refusal === null) return { family, why: [`${where}: ${family.summary}`, ...refusals].join('; ') };
    refusals.push(`not ${family.name}: ${refusal.message}`);
  }
  const family = families.find(({ reach }) => reach === 'world' || nodes === 1)!;
  return { family, why: where };
}
