/** The plan of a layer: its window, and the launches of its phases. */
import { section } from '../../../lang/index.js';
import { planOf, receiveWindow } from '../common/plan.js';
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
  const { layout, ...kernels } = kernelsOf({ shape, transport });
  const window = receiveWindow(shape, layout, [...roundWords, 'waited']);
  const memory = {
    ...{ ...window, symmetric: transport === 'nvshmem' },
    unwritten: [...window.unwritten, section(layout, 'returned')],
  };
  const { dispatch, combine } = shape;
  return planOf({
    ...{ layer: shape, rank, memory, layout, rounds: 'finished' },
    phases: {
      dispatchSend: [
        {
          ...{ ...dispatch, kernel: kernels.dispatchSend },
          summary: 'sends tokens to the ranks that own their experts, as messages',
        },
      ],
      dispatchRecv: [
        {
          ...{ ...dispatchRecvSpread(shape), kernel: kernels.dispatchRecv },
          summary: 'waits until all of a dispatch has come',
        },
      ],
      combineSend: [
        kernels.weigh,
        { ...combine, kernel: kernels.combineSend, summary: 'sends partial rows home, as messages' },
      ],
      // A block more than there is work for: the meeting's.
      combineRecv: [
        {
          ...{ ...combine, blocks: combine.blocks + 1, kernel: kernels.combineRecv },
          summary: 'adds up partial rows as they come home',
        },
      ],
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
    dispatchSend: dispatchSendKernel(p),
    dispatchRecv: dispatchRecvKernel(p),
    weigh: weighLaunch('portable_weigh', shape, p.window),
    combineSend: combineSendKernel(p),
    combineRecv: combineRecvKernel(p),
  };
});
