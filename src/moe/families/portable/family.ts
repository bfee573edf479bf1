/** The portable family: rows travel by three primitives, which every network has. */
import { ArgumentError, type HeddleError } from '../../../base/errors.js';
import type { Layer } from '../../layer/index.js';
import { refusesFew, refusesMasks, refusesOnNode } from '../common/refusals.js';
import { weighSpread } from '../common/weigh.js';
import type { Family, PlanTarget } from '../family.js';
import { defaultTuning } from './defaults.js';
import { type PortableTuning, portableKnobs } from './knobs.js';
import { messagesOf } from './messages.js';
import { portablePlan } from './plan.js';
import type { PortableShape } from './window.js';

/** Both forms of a phase are the same launches, back to back or with work between. */
export const portable: Family<PortableTuning> = {
  name: 'portable',
  summary: 'messages with signals behind them, one to a rank that wants a row; no phase but its end waits',
  reach: 'node',
  travel: { rows: 'rank', message: 'row', metadata: 'every rank', chunk: () => 32 },
  knobs: portableKnobs,
  can: ['masks', 'adds', 'waits', 'plans', 'rounds'],
  refuses,
  defaults,
  adapt: adapted,
  plan: (layer, target, tuning) => portablePlan(shapeOf(layer, target, tuning), target),
};

function refuses(layer: Layer, target: PlanTarget, tuning?: PortableTuning): HeddleError | null {
  const { topology, transport } = target;
  const refusal = refusesOnNode(layer, topology) ?? refusesFew(target, tuning) ?? refusesMasks(layer);
  if (refusal !== null) return refusal;
  if (layer.masks && transport === 'nvshmem') {
    const possible = "'throw' over NVSHMEM, which ends with all of its ranks or not at all";
    return new ArgumentError('onLoss', 'mask', possible);
  }
  const shape = shapeOf(layer, target, tuning ?? defaults(layer, target));
  const { ofRound } = messagesOf(shape);
  if (ofRound >= 2 ** 31) {
    const possible = `so few that a round has less than 2^31 messages, not ${ofRound}`;
    return new ArgumentError('tuning.dispatch.parts', shape.dispatch.parts, possible);
  }
  return null;
}

function defaults(layer: Layer, target: PlanTarget): PortableTuning {
  return adapted(defaultTuning(layer, target), layer, target);
}

/** On few multiprocessors; combine's receive has a block more than its work needs. */
function adapted({ dispatch, combine }: PortableTuning, _: Layer, { sms }: PlanTarget): PortableTuning {
  const most = sms ?? Number.POSITIVE_INFINITY;
  return {
    dispatch: { ...dispatch, blocks: Math.min(dispatch.blocks, most) },
    combine: { ...combine, blocks: Math.min(combine.blocks, most - 1) },
  };
}

const shapeOf = (layer: Layer, target: PlanTarget, tuning: PortableTuning): PortableShape => ({
  ...layer,
  ...tuning,
  weigh: weighSpread(layer, tuning.combine, target),
});
