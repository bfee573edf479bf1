/** The launches of a round: the same four, and `weigh` where combine weighs, whether other work stands between halves or not. */
import type { Window } from '../../../gpu/index.js';
import { setPlacing } from '../common/places.js';
import { weighKernel, weighSteps } from '../common/weigh.js';
import {
  type BufferPlan,
  type Placed,
  type PlacingPlan,
  type Plan,
  remembered,
  type Step,
  setSums,
  setTokens,
  step,
  type WindowPlan,
  type WirePlan,
} from '../family.js';
import { combineRecvKernel } from './combine-recv.js';
import { combineSendKernel } from './combine-send.js';
import { dispatchRecvKernel } from './dispatch-recv.js';
import { dispatchSendKernel } from './dispatch-send.js';
import { type HybridShape, mostPackers } from './shape.js';
import { hybridWindow } from './window.js';
import { hybridWire } from './wire.js';

interface Memories {
  readonly window: WindowPlan;
  readonly wire: WirePlan;
  readonly routes: BufferPlan | null;
  readonly placing: PlacingPlan | null;
  /** This rank's. */
  readonly node: number;
}

export function stepsOf(shape: HybridShape, kernels: HybridKernels, memories: Memories): Plan['phases'] {
  return {
    dispatchSend: [dispatchSendStep(shape, kernels, memories)],
    dispatchRecv: [dispatchRecvStep(shape, kernels, memories)],
    combineSend: [...weighing(shape, kernels, memories), combineSendStep(shape, kernels, memories)],
    combineRecv: [combineRecvStep(shape, kernels, memories)],
  };
}

interface Sending {
  win(window: Window): void;
  wire(window: Window): void;
  node(value: number): void;
}

/** The arguments of all launches but weigh. */
const setSending =
  ({ window, wire, node }: Memories) =>
  (set: Sending, placed: Placed): void => {
    set.win(placed.window(window));
    set.wire(placed.window(wire));
    set.node(node);
  };

/** And those that wait for a peer. */
const setWaiting =
  (memories: Memories) =>
  (set: Sending & { limit(value: number): void }, placed: Placed): void => {
    setSending(memories)(set, placed);
    set.limit(placed.limit);
  };

const dispatchSendStep = (
  { dispatch: { blocks, threads }, weights }: HybridShape,
  { dispatchSend: kernel }: HybridKernels,
  memories: Memories,
) =>
  step({
    ...{ kernel, blocks, threads },
    summary: 'packs messages for other nodes, and stores to its own',
    once(set, placed) {
      setSending(memories)(set, placed);
      setPlacing(memories.placing, set, placed);
    },
    each: setTokens(weights),
  });

/** A block more than there is work for: it watches. */
const dispatchRecvStep = (
  { dispatch: { blocks, threads } }: HybridShape,
  { dispatchRecv: kernel }: HybridKernels,
  memories: Memories,
) =>
  step({
    ...{ kernel, blocks: blocks + 1, threads },
    summary: 'forwards what comes from other nodes to its owners',
    once: setWaiting(memories),
  });

const weighing = (
  { weigh: spread }: HybridShape,
  { weigh: kernel }: HybridKernels,
  { window, routes }: Memories,
): Step[] => weighSteps({ kernel, spread, routes, window: (placed) => placed.window(window) });

const combineSendStep = (
  { combine: { blocks, threads } }: HybridShape,
  { combineSend: kernel }: HybridKernels,
  memories: Memories,
) =>
  step({
    ...{ kernel, threads },
    summary: 'sums inside the node what goes home to others',
    blocks: Math.min(blocks, mostPackers.combine),
    once: setWaiting(memories),
  });

/** As above. */
const combineRecvStep = (
  { combine: { blocks, threads } }: HybridShape,
  { combineRecv: kernel }: HybridKernels,
  memories: Memories,
) =>
  step({
    ...{ kernel, blocks: blocks + 1, threads },
    summary: 'adds up the sums of all nodes',
    once: setWaiting(memories),
    each: setSums,
  });

/** The kernels of a shape, made once: ranks of one process and runs of one check share them, compiled code included. */
export const kernelsOf = remembered((shape: HybridShape) => {
  const window = hybridWindow(shape);
  const wire = hybridWire(shape);
  return {
    window,
    wire,
    dispatchSend: dispatchSendKernel(shape, window, wire),
    dispatchRecv: dispatchRecvKernel(shape, window, wire),
    weigh: shape.weigh && weighKernel('hybrid_weigh', shape, window, shape.weigh),
    combineSend: combineSendKernel(shape, window, wire),
    combineRecv: combineRecvKernel(shape, window, wire),
  };
});
export type HybridKernels = ReturnType<typeof kernelsOf>;
