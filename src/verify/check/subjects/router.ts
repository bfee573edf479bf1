/** Logits and choices, twice over the same memory, so that each launch meets what the one before it may still use. */
import type { ReferenceRoutes, Routing } from '../../../moe/layer/index.js';
import { World } from '../../../net/world/index.js';
import {
  compareRouted,
  expectedRoutes,
  makeRouted,
  type RoutedInputs,
  type RoutedOptions,
  runRouter,
} from '../../trials/index.js';
import { type CheckConfiguration, type CheckSubject, WrongResult } from '../subject.js';

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
  // More tokens than warps: one of them writes its scores where those of the token before were read.
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

/** One rank is enough: the work is its own. */
function configuration(name: string, options: RoutedOptions): CheckConfiguration {
  // The same in every schedule, so made once.
  let made: { readonly inputs: RoutedInputs; readonly expected: ReferenceRoutes } | undefined;
  return {
    name,
    ranks: 1,
    tiny: options.tokens === 1,
    async run(machine) {
      if (made === undefined) {
        const inputs = makeRouted(options);
        made = { inputs, expected: expectedRoutes(inputs) };
      }
      const { inputs, expected } = made;
      const [routed] = await World.local({ ranks: 1, device: 'sim', sim: machine }, (world) =>
        runRouter(world, inputs, 2),
      );
      const { different, first } = compareRouted(options.model, routed!, expected);
      if (different > 0) throw new WrongResult(`${first} (${different} values differ)`);
    },
  };
}
