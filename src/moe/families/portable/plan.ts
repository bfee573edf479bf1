/** The plan of a layer: its window, and the launches of its phases. */
import { section } from '../../../lang/index.js';
import { launch, planOf, receiveWindow } from '../common/plan.js';
import { weighLaunch } from '../common/weigh.js';
import { memoized, type Plan, type PlanTarget, type TransportName } from '../family.js';
import { combineRecvKernel } from './combine-recv.js';
import { combineSendKernel } from './combine-send.js';
import { dispatchRecvKernel, dispatchRecvSpread } from './dispatch-recv.js';
import { dispatchSendKernel } from './dispatch-send.js';
import { portableKit } from './kit.js';
import { nvshmem } from './nvshmem.js';
import { type Transport, windows } from './transport.js';
import { type PortableShape, roundWords } from './window.js';

export function portablePlan(shape: PortableShape, { rank, transport }: PlanTarget): Plan {
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
