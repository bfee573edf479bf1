/** The launches of a round: the same four, and `weigh` where combine weighs, whether other work stands between halves or not. */
import { type BufferPlan, type Plan, type Step, step, type WindowPlan, type WirePlan } from '../family.js';
import type { HybridKernels } from './kernels.js';
import type { HybridShape } from './shape.js';

interface Memories {
  readonly window: WindowPlan;
  readonly wire: WirePlan;
  readonly routes: BufferPlan | null;
  /** This rank's. */
  readonly node: number;
}

export function stepsOf(shape: HybridShape, kernels: HybridKernels, memories: Memories): Plan['phases'] {
  return {
    dispatchSend: [dispatchSendStep(shape, kernels, memories)],
    dispatchRecv: [dispatchRecvStep(shape, kernels, memories)],
    combineSend: [...weighSteps(shape, kernels, memories), combineSendStep(shape, kernels, memories)],
    combineRecv: [combineRecvStep(shape, kernels, memories)],
  };
}

const dispatchSendStep = (
  { dispatch: { blocks, threads }, weights }: HybridShape,
  { dispatchSend: kernel }: HybridKernels,
  { window, wire, node }: Memories,
) =>
  step({
    ...{ kernel, blocks, threads },
    once(set, placed) {
      set.win(placed.window(window));
      set.wire(placed.window(wire));
      set.node(node);
    },
    each(set, { tokens, topkIds, topkWeights, rows }) {
      set.tokens(tokens);
      set.topkIds(topkIds);
      set.topkWeights(weights ? topkWeights : topkIds); // which nobody reads then
      for (let i = 0; i < rows.length; i++) set.rows(i, rows[i]!);
    },
  });

/** A block more than there is work for: it watches. */
const dispatchRecvStep = (
  { dispatch: { blocks, threads } }: HybridShape,
  { dispatchRecv: kernel }: HybridKernels,
  { window, wire, node }: Memories,
) =>
  step({
    ...{ kernel, blocks: blocks + 1, threads },
    once(set, placed) {
      set.win(placed.window(window));
      set.wire(placed.window(wire));
      set.node(node);
      set.limit(placed.limit);
    },
  });

const weighSteps = (
  { weigh }: HybridShape,
  { weigh: kernel }: HybridKernels,
  { window, routes }: Memories,
): Step[] => {
  if (kernel === null || weigh === null || routes === null) return [];
  const { blocks, threads } = weigh;
  return [
    step({
      ...{ kernel, blocks, threads },
      once(set, placed) {
        set.win(placed.window(window));
        set.rows(placed.address(routes));
      },
    }),
  ];
};

const combineSendStep = (
  { combine: { blocks, threads } }: HybridShape,
  { combineSend: kernel }: HybridKernels,
  { window, wire, node }: Memories,
) =>
  step({
    ...{ kernel, blocks, threads },
    once(set, placed) {
      set.win(placed.window(window));
      set.wire(placed.window(wire));
      set.node(node);
      set.limit(placed.limit);
    },
  });

/** As above. */
const combineRecvStep = (
  { combine: { blocks, threads } }: HybridShape,
  { combineRecv: kernel }: HybridKernels,
  { window, wire, node }: Memories,
) =>
  step({
    ...{ kernel, blocks: blocks + 1, threads },
    once(set, placed) {
      set.win(placed.window(window));
      set.wire(placed.window(wire));
      set.node(node);
      set.limit(placed.limit);
    },
    each(set, { topkIds, out, tokens }) {
      set.topkIds(topkIds);
      set.out(out);
      set.tokens(tokens);
    },
  });
