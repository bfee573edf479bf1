/** Plan, expand and reduce, twice over the same memory, so that each launch meets what the one before it may still use. */

import type { ExpertsPlanOptions } from '../../../moe/index.js';
import { type Layer, reference } from '../../../moe/layer/index.js';
import type { World } from '../../../net/world/index.js';
import { makeSources, type RoundsShape, type RoutesOptions, shapeOfRounds } from '../../testing/index.js';
import { comparePlan, placeReceived, runPlan } from '../../trials/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { ofOneRank, once } from './by-rank.js';

interface Rows {
  /** Options that it leaves out are as in `usual`. */
  readonly shape?: Partial<RoundsShape>;
  readonly options?: ExpertsPlanOptions;
  readonly routes?: RoutesOptions;
  readonly weights?: boolean;
  readonly on?: Pick<CheckConfiguration, 'residentBlocks'>;
}

const usual: RoundsShape = { ranks: 2, experts: 5, topK: 3, maxTokens: 3, hidden: 8, dtype: 'bf16' };

const all: Readonly<Record<string, Rows>> = {
  'one token': { shape: { ranks: 1, experts: 2, topK: 2, maxTokens: 1 } },
  // Routes of one expert in both warps of several blocks, and in several steps of each.
  'several blocks and steps': { shape: { experts: 9, topK: 8, maxTokens: 17, hidden: 1, dtype: 'f32' } },
  // Rows of more vectors than a block has threads.
  'one resident block': { shape: { maxTokens: 12, topK: 4, hidden: 536 }, on: { residentBlocks: 1 } },
  // Bytes that all threads of a block take several times.
  'aligned, scales and long rows of bytes beside rows': {
    shape: { extra: [36, 601] },
    options: { alignment: 16 },
  },
  'masked, without room for all': {
    options: { form: 'masked', capacity: 2 },
    routes: { router: { kind: 'repeated' } },
  },
  'contiguous, without room for all': { options: { capacity: 3 } },
  'routes to nobody, no weights': { weights: false, routes: { holes: 0.5 } },
  'more experts than lanes, without room for all': {
    shape: { ranks: 1, experts: 40, topK: 9 },
    options: { capacity: 12 },
  },
  'more experts than lanes': { shape: { ranks: 1, experts: 40, topK: 9, hidden: 3, dtype: 'f16' } },
};

export const experts: CheckSubject = {
  name: 'experts',
  kernels: ['experts_plan', 'experts_expand', 'experts_reduce'],
  configurations: Object.entries(all).map(([name, of]) => configuration(`experts, ${name}`, of)),
};

/** The rank is the last, so the ids of its experts do not begin at 0. */
function configuration(
  name: string,
  { shape, options = {}, routes, weights = true, on }: Rows,
): CheckConfiguration {
  const layer: Layer = { ...shapeOfRounds({ ...usual, ...shape }), weights, counts: false };
  const rank = layer.ranks - 1;
  const made = once(() => reference.dispatch(layer, makeSources(layer, layer.maxTokens, 1, routes), rank));
  const work = async ({ device }: World) => {
    const received = made();
    const stream = device.createStream();
    const placed = placeReceived(device, stream, layer, received);
    await stream.synchronize();
    const result = await runPlan({ world: { device, rank }, shape: layer, received: placed }, options, 2);
    return comparePlan(layer, rank, received, options, result);
  };
  return ofOneRank(name, work, on);
}
