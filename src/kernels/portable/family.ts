/** The portable family: rows travel by three primitives, which every network has. */
import { ArgumentError, type HeddleError } from '../../errors/index.js';
import { section } from '../../lang/index.js';
import type { Layer } from '../../layer/index.js';
import { failureWords } from '../common/failure.js';
import { receivedPlan, routesBuffer, unwrittenSections } from '../common/received.js';
import { refusesFew, refusesOnNode } from '../common/refusals.js';
import { remembered } from '../common/remembered.js';
import { weighKernel, weighSpread } from '../common/weigh.js';
import {
  type BufferPlan,
  type Family,
  type Place,
  type Plan,
  type Step,
  step,
  type WindowPlan,
} from '../family.js';
import { combineRecvKernel } from './combine-recv.js';
import { combineSendKernel } from './combine-send.js';
import { defaultTuning } from './defaults.js';
import { dispatchRecvKernel, dispatchRecvSpread } from './dispatch-recv.js';
import { dispatchSendKernel } from './dispatch-send.js';
import { type PortableTuning, portableKnobs } from './knobs.js';
import { messagesOf } from './messages.js';
import { type Transport, windows } from './transport.js';
import { type PortableShape, portableWindow } from './window.js';

/** The family over some transport. Both forms of a phase are the same launches, back to back or with work between. */
export function portableOver(transport: Transport): Family<PortableTuning> {
  const kernelsOf = remembered((shape: PortableShape) => kernelsOver(transport, shape));
  return {
    name: 'portable',
    summary: 'messages with signals behind them, one to a rank that wants a row; no phase but its end waits',
    reach: 'node',
    knobs: portableKnobs,
    refuses,
    defaults: (layer, place) => adapted(defaultTuning(layer, place.kind), layer, place),
    adapt: adapted,
    plan: (layer, place, tuning) => {
      const shape = shapeOf(layer, place, tuning);
      return planOf(shape, place, kernelsOf(shape));
    },
  };
}

export const portable = portableOver(windows);

function refuses(layer: Layer, place: Place, tuning?: PortableTuning): HeddleError | null {
  const refusal = refusesOnNode(layer, place.topology) ?? refusesFew(place, tuning);
  if (refusal !== null || tuning === undefined) return refusal;
  const { ofRound } = messagesOf({ ...layer, ...tuning });
  if (ofRound < 2 ** 31) return null;
  const possible = `so few that a round has less than 2^31 messages, not ${ofRound}`;
  return new ArgumentError('tuning.dispatch.parts', tuning.dispatch.parts, possible);
}

/** On few multiprocessors; combine's receive has a block more than its work needs. */
function adapted({ dispatch, combine }: PortableTuning, _: Layer, { sms }: Place): PortableTuning {
  const most = sms ?? Number.POSITIVE_INFINITY;
  return {
    dispatch: { ...dispatch, blocks: Math.min(dispatch.blocks, most) },
    combine: { ...combine, blocks: Math.min(combine.blocks, most - 1) },
  };
}

const shapeOf = (layer: Layer, place: Place, tuning: PortableTuning): PortableShape => ({
  ...layer,
  ...tuning,
  weigh: layer.output.weighting === 'combine' ? weighSpread(layer, tuning.combine, place) : null,
});

/** Made once for a shape: ranks of one process and runs of one check share them, compiled code included. */
function kernelsOver(transport: Transport, shape: PortableShape) {
  const layout = portableWindow(shape);
  return {
    layout,
    dispatchSend: dispatchSendKernel(shape, layout, transport),
    dispatchRecv: dispatchRecvKernel(shape, layout, transport),
    weigh: shape.weigh && weighKernel('portable_weigh', shape, layout, shape.weigh),
    combineSend: combineSendKernel(shape, layout, transport),
    combineRecv: combineRecvKernel(shape, layout, transport),
  };
}
type Kernels = ReturnType<typeof kernelsOver>;

function planOf(shape: PortableShape, { rank }: Place, kernels: Kernels): Plan {
  const { layout } = kernels;
  const window: WindowPlan = {
    kind: 'window',
    purpose: 'receive window',
    layout,
    // Where a rank is lost before its first dispatch, experts that run all the same find -1 everywhere.
    ones: [section(layout, 'experts')],
    unwritten: [...unwrittenSections(shape, layout), section(layout, 'returned')],
  };
  const routes = routesBuffer(shape);
  return {
    windows: [window],
    buffers: routes === null ? [] : [routes],
    wire: null,
    phases: {
      dispatchSend: [dispatchSendStep(kernels, shape, window)],
      dispatchRecv: [dispatchRecvStep(kernels, shape, window)],
      combineSend: [...weighSteps(kernels, shape, window, routes), combineSendStep(kernels, shape, window)],
      combineRecv: [combineRecvStep(kernels, shape, window)],
    },
    received: receivedPlan(shape, rank, window, layout, routes),
    failure: { in: window, offset: section(layout, 'failure').offset, dtype: 'u32', shape: [failureWords] },
  };
}

const dispatchSendStep = (
  { dispatchSend: kernel }: Kernels,
  { dispatch: { blocks, threads }, weights }: PortableShape,
  window: WindowPlan,
) =>
  step({
    kernel,
    blocks,
    threads,
    once: (set, placed) => set.win(placed.window(window)),
    each(set, { tokens, topkIds, topkWeights, rows }) {
      set.tokens(tokens);
      set.topkIds(topkIds);
      set.topkWeights(weights ? topkWeights : topkIds); // which nobody reads then
      for (let i = 0; i < rows.length; i++) set.rows(i, rows[i]!);
    },
  });

const dispatchRecvStep = ({ dispatchRecv: kernel }: Kernels, shape: PortableShape, window: WindowPlan) =>
  step({
    kernel,
    ...dispatchRecvSpread(shape),
    once(set, placed) {
      set.win(placed.window(window));
      set.limit(placed.limit);
    },
  });

const weighSteps = (
  { weigh: kernel }: Kernels,
  { weigh }: PortableShape,
  window: WindowPlan,
  routes: BufferPlan | null,
): Step[] => {
  if (kernel === null || weigh === null || routes === null) return [];
  const { blocks, threads } = weigh;
  return [
    step({
      kernel,
      blocks,
      threads,
      once(set, placed) {
        set.win(placed.window(window));
        set.rows(placed.address(routes));
      },
    }),
  ];
};

const combineSendStep = (
  { combineSend: kernel }: Kernels,
  { combine: { blocks, threads } }: PortableShape,
  window: WindowPlan,
) => step({ kernel, blocks, threads, once: (set, placed) => set.win(placed.window(window)) });

/** A block more than there is work for: the meeting's. */
const combineRecvStep = (
  { combineRecv: kernel }: Kernels,
  { combine: { blocks, threads } }: PortableShape,
  window: WindowPlan,
) =>
  step({
    kernel,
    blocks: blocks + 1,
    threads,
    once(set, placed) {
      set.win(placed.window(window));
      set.limit(placed.limit);
    },
    each(set, { topkIds, out, tokens }) {
      set.topkIds(topkIds);
      set.out(out);
      set.tokens(tokens);
    },
  });
