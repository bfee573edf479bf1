/** Logits and choices, twice over the same memory, so that each launch meets what the one before it may still use. */
import type { Routing } from '../../../moe/layer/index.js';
import type { World } from '../../../net/world/index.js';
import {
  compareRouted,
  expectedRoutes,
  makeRouted,
  type RoutedOptions,
  runRouter,
} from '../../trials/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { ofOneRank, once } from './by-rank.js';

const softmax: Routing = { scores: 'softmax', normalise: true, scale: 1 };
const sigmoid: Routing = { scores: 'sigmoid', normalise: true, scale: 2.5 };

const all: Readonly<Record<string, RoutedOptions>> = {
  'one token': { model: { hidden: 8, experts: 2, topK: 1, routing: softmax }, tokens: 1, seed: 1 },
  // Elements for both warps of a tile, tiles for several blocks and several rounds of each.
  'several tiles': {
    ...{ model: { hidden: 520, experts: 33, topK: 3, routing: softmax }, tokens: 17, seed: 2 },
    ...{ weights: 'f32', bias: true },
  },
  // So many tokens take large tiles; the second has one token.
  'large tiles': {
    model: { hidden: 72, experts: 9, topK: 2, routing: softmax },
    ...{ tokens: 33, seed: 4 },
  },
  // There are more tokens than warps, so a warp takes a second token, and writes its scores over those of the first.
  groups: {
    model: { hidden: 16, experts: 12, topK: 2, routing: { ...sigmoid, groups: { count: 3, top: 2 } } },
    ...{ tokens: 9, seed: 3, correction: true },
  },
};

export const router: CheckSubject = {
  name: 'router',
  kernels: ['router_logits', 'router_choose'],
  configurations: Object.entries(all).map(([name, of]) => configuration(`router, ${name}`, of)),
};

function configuration(name: string, options: RoutedOptions): CheckConfiguration {
  const made = once(() => {
    const inputs = makeRouted(options);
    return { inputs, expected: expectedRoutes(inputs) };
  });
  const work = async (world: World) => {
    const { inputs, expected } = made();
    return compareRouted(options.model, await runRouter(world, inputs, 2), expected);
  };
  return ofOneRank(name, work);
}
