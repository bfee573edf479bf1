/** The plan of a layer: its window, which lies in GPU memory or where a network reaches it, and the launches of its phases. */
import type { Window } from '../../../gpu/index.js';
import { section } from '../../../lang/index.js';
import { planOf, receiveWindow } from '../common/plan.js';
import { weighLaunch } from '../common/weigh.js';
import {
  type Place,
  type Placed,
  type Plan,
  remembered,
  type TransportName,
  type WindowPlan,
  type WirePlan,
} from '../family.js';
import { combineRecvKernel } from './combine-recv.js';
import { combineSendKernel } from './combine-send.js';
import { proxyPlan } from './commands.js';
import { dispatchRecvKernel, dispatchRecvSpread } from './dispatch-recv.js';
import { dispatchSendKernel } from './dispatch-send.js';
import { nvshmem } from './nvshmem.js';
import { proxied } from './proxied.js';
import { stageKernel } from './stage.js';
import { type Transport, windows } from './transport.js';
import { type PortableShape, type PortableWindow, portableWindow, roundWords } from './window.js';

export function portablePlan(shape: PortableShape, { rank, transport }: Place): Plan {
  const { layout, stage, ...kernels } = kernelsOf({ shape, transport });
  const memory = memoryOf(shape, layout, transport);
  // Of a wire there is this rank's own, in which every peer's place is found too.
  const seen = (placed: Placed): Window => {
    const window = placed.window(memory);
    if (memory.kind === 'window') return window;
    return { ...window, bases: new Array<number>(shape.ranks).fill(window.bases[0]!) };
  };
  // Rows are sent from where they lie, or from where they were brought.
  const brought = (placed: Placed) =>
    shape.payloads.map((_, i) => seen(placed).bases[0]! + section(layout, 'brought', i).offset);
  const { dispatch, combine } = shape;
  return planOf({
    // Kernels count the ranks of the world.
    ...{ layer: shape, rank, kernelRank: rank, memory, layout, rounds: 'finished', bindings: { win: seen } },
    phases: {
      dispatchSend: [
        stage && { ...dispatch, kernel: stage, summary: 'brings rows to where the network reads them' },
        {
          ...{ ...dispatch, kernel: kernels.dispatchSend },
          summary: 'sends tokens to the ranks that own their experts, as messages',
          ...(stage && { bindings: { rows: brought } }),
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

/** Puts read and write only memory behind the commands, which begins with the rows that were brought, or with the ids where there are no payloads. */
function memoryOf(
  shape: PortableShape,
  layout: PortableWindow,
  transport: TransportName,
): WindowPlan | WirePlan {
  const window = receiveWindow(shape, layout, [...roundWords, 'waited']);
  if (transport !== 'proxy')
    return {
      ...{ ...window, symmetric: transport === 'nvshmem' },
      unwritten: [...window.unwritten, section(layout, 'returned')],
    };
  return {
    ...{ kind: 'wire', purpose: window.purpose, layout, allOnes: window.allOnes },
    front: layout.fields[layout.fields.indexOf(section(layout, 'commands')) + 1]!.offset,
    program: {
      module: new URL('./proxy.js', import.meta.url),
      name: 'portableProxy',
      data: proxyPlan(layout),
    },
  };
}

const transports: Readonly<Record<TransportName, Transport>> = { windows, nvshmem, proxy: proxied };

/** Made once for a shape: ranks of one process and runs of one check share them, compiled code included. */
const kernelsOf = remembered((of: { readonly shape: PortableShape; readonly transport: TransportName }) => {
  const { shape } = of;
  const transport = transports[of.transport];
  const layout = portableWindow(shape);
  return {
    layout,
    stage: shape.commands > 0 ? stageKernel(shape, layout) : null,
    dispatchSend: dispatchSendKernel(shape, layout, transport),
    dispatchRecv: dispatchRecvKernel(shape, layout, transport),
    weigh: weighLaunch('portable_weigh', shape, layout),
    combineSend: combineSendKernel(shape, layout, transport),
    combineRecv: combineRecvKernel(shape, layout, transport),
  };
});
