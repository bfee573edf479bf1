/** The portable family: rows travel by three primitives, which every network has. */
import { ArgumentError, type HeddleError } from '../../../base/errors.js';
import { section } from '../../../lang/index.js';
import { type Layer, sharing } from '../../layer/index.js';
import type { Spread } from '../common/parts.js';
import { launch, planOf, receiveWindow } from '../common/plan.js';
import { refusesFew, refusesMasks, refusesOnNode } from '../common/refusals.js';
import { weighLaunch, weighSpread } from '../common/weigh.js';
import { type Family, memoized, type Plan, type PlanTarget, type TransportName } from '../family.js';
import { combineRecvKernel } from './combine-recv.js';
import { combineSendKernel } from './combine-send.js';
import { dispatchRecvKernel, dispatchRecvSpread } from './dispatch-recv.js';
import { dispatchSendKernel } from './dispatch-send.js';
import { portableKit } from './kit.js';
import { type PortableTuning, portableKnobs } from './knobs.js';
import { chunksOf, messagesOf } from './messages.js';
import { nvshmem } from './nvshmem.js';
import { type Transport, windows } from './transport.js';
import { type PortableShape, roundWords } from './window.js';

/** Both forms of a phase are the same launches, back to back or with work between. */
export const portable: Family<PortableTuning> = {
  name: 'portable',
  summary: 'messages with signals behind them, one to a rank that wants a row; no phase but its end waits',
  reach: 'node',
  travel: { rows: 'rank', message: 'row', metadata: 'every rank', chunk: () => 32 },
  knobs: portableKnobs,
  can: ['masks', 'adds', 'waits', 'plans', 'rounds'],
  refuses,
  defaults: (layer, target) => adapted(spreadFor(layer, target), layer, target),
  adapt: adapted,
  plan,
};

function refuses(layer: Layer, target: PlanTarget, tuning?: PortableTuning): HeddleError | null {
  const { topology, transport } = target;
  const refusal = refusesOnNode(layer, topology) ?? refusesFew(target, tuning) ?? refusesMasks(layer);
  if (refusal !== null) return refusal;
  if (layer.masks && transport === 'nvshmem') {
    const possible = "'throw' over NVSHMEM, which ends with all of its ranks or not at all";
    return new ArgumentError('onLoss', 'mask', possible);
  }
  const shape = shapeOf(layer, target, tuning ?? portable.defaults(layer, target));
  const { ofRound } = messagesOf(shape);
  if (ofRound >= 2 ** 31) {
    const possible = `so few that a round has less than 2^31 messages, not ${ofRound}`;
    return new ArgumentError('tuning.dispatch.parts', shape.dispatch.parts, possible);
  }
  return null;
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

function plan(layer: Layer, target: PlanTarget, tuning: PortableTuning): Plan {
  const { rank, transport } = target;
  const shape = shapeOf(layer, target, tuning);
  const { layout, sends, receives, weigh, returns, sums } = kernelsOf({ shape, transport });
  const window = receiveWindow(shape, layout, [...roundWords, 'waited']);
  const memory = {
    ...{ ...window, symmetric: transport === 'nvshmem' },
    unwritten: [...window.unwritten, section(layout, 'returned')],
  };
  const { dispatch, combine } = shape;
  /** A block more than there is work for: the meeting's. */
  const meeting = { ...combine, blocks: combine.blocks + 1 };
  return planOf({
    ...{ layer: shape, rank, memory, layout, rounds: 'finished' },
    phases: {
      dispatchSend: [
        launch(sends, dispatch, 'sends tokens to the ranks that own their experts, as messages'),
      ],
      dispatchRecv: [launch(receives, dispatchRecvSpread(shape), 'waits until all of a dispatch has come')],
      combineSend: [weigh, launch(returns, combine, 'sends partial rows home, as messages')],
      combineRecv: [launch(sums, meeting, 'adds up partial rows as they come home')],
    },
  });
}

const transports: Readonly<Record<TransportName, Transport>> = { windows, nvshmem };

/** Made once for a shape: ranks of one process and runs of one check share them, compiled code included. */
const kernelsOf = memoized((of: { readonly shape: PortableShape; readonly transport: TransportName }) => {
  const { shape } = of;
  const p = portableKit(shape, transports[of.transport]);
  return {
    layout: p.window,
    sends: dispatchSendKernel(p),
    receives: dispatchRecvKernel(p),
    weigh: weighLaunch('portable_weigh', shape, p.window),
    returns: combineSendKernel(p),
    sums: combineRecvKernel(p),
  };
});

/** How the kernels are spread where nobody measured: on a GPU a warp for every piece of a row, as far as there is room. */
function spreadFor(layer: Layer, { kind, multiprocessors }: PlanTarget): PortableTuning {
  if (kind === 'sim') {
    // Simulated threads cost time and simulated latency costs nothing.
    const launch = { blocks: Math.min(layer.maxTokens, 8), threads: 32, parts: 1 };
    return { dispatch: launch, combine: launch };
  }
  const { turns } = sharing(layer);
  /** Two on each multiprocessor are there at once. */
  const blocksFor = (pieces: number, { threads }: Cut): number =>
    Math.min(2 * multiprocessors, Math.ceil(pieces / (threads / 32)));
  const { dispatch, combine } = spreads.find(({ most }) => layer.maxTokens <= most)!;
  return {
    dispatch: {
      ...dispatch,
      blocks: blocksFor(turns * dispatch.parts + layer.ranks * chunksOf(layer), dispatch),
    },
    combine: { ...combine, blocks: blocksFor(turns * combine.parts, combine) },
  };
}

type Cut = Pick<Spread, 'threads' | 'parts'>;

/** Small rounds are latency: several warps share a row. Large ones are bandwidth, which fewer warps carry better. */
const spreads: readonly { readonly most: number; readonly dispatch: Cut; readonly combine: Cut }[] = [
  { most: 2, dispatch: { threads: 32, parts: 14 }, combine: { threads: 32, parts: 14 } },
  { most: 16, dispatch: { threads: 64, parts: 7 }, combine: { threads: 64, parts: 7 } },
  { most: 64, dispatch: { threads: 128, parts: 7 }, combine: { threads: 128, parts: 14 } },
  { most: 256, dispatch: { threads: 256, parts: 4 }, combine: { threads: 128, parts: 7 } },
  {
    most: Number.POSITIVE_INFINITY,
    dispatch: { threads: 256, parts: 4 },
    combine: { threads: 128, parts: 2 },
  },
];
