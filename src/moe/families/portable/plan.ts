/** The plan of a layer: its window, which lies in GPU memory or where a network reaches it, and the launches of its phases. */
import type { Window } from '../../../gpu/index.js';
import { type Kernel, section } from '../../../lang/index.js';
import type { Spread } from '../common/parts.js';
import { planOf, receiveWindow } from '../common/plan.js';
import { weighKernel, weighSteps } from '../common/weigh.js';
import {
  type Bindings,
  type Place,
  type Placed,
  type Plan,
  remembered,
  step,
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
    ...{ layer: shape, rank, memory, layout, rounds: 'finished' },
    phases(given, routes) {
      const bindings = { ...given, win: seen };
      // Kernels count the ranks of the world.
      const launch = (
        kernel: Kernel,
        { blocks, threads }: Launch,
        summary: string,
        of: Bindings = bindings,
      ) => step({ kernel, summary, blocks, threads, rank, bindings: of });
      const send = { ...bindings, rows: stage === null ? undefined : brought };
      return {
        dispatchSend: [
          ...(stage === null ? [] : [launch(stage, dispatch, 'brings rows to where the network reads them')]),
          launch(
            kernels.dispatchSend,
            dispatch,
            'sends tokens to the ranks that own their experts, as messages',
            send,
          ),
        ],
        dispatchRecv: [
          launch(kernels.dispatchRecv, dispatchRecvSpread(shape), 'waits until all of a dispatch has come'),
        ],
        combineSend: [
          ...weighSteps(kernels.weigh, shape, bindings, routes, rank),
          launch(kernels.combineSend, combine, 'sends partial rows home, as messages'),
        ],
        // A block more than there is work for: the meeting's.
        combineRecv: [
          launch(
            kernels.combineRecv,
            { ...combine, blocks: combine.blocks + 1 },
            'adds up partial rows as they come home',
          ),
        ],
      };
    },
  });
}

type Launch = Pick<Spread, 'blocks' | 'threads'>;

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
    weigh: weighKernel('portable_weigh', shape, layout),
    combineSend: combineSendKernel(shape, layout, transport),
    combineRecv: combineRecvKernel(shape, layout, transport),
  };
});
