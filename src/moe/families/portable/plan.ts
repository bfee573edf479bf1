/** The plan of a layer: its window, which lies in GPU memory or where a network reaches it, and the launches of its phases. */
import { section } from '../../../lang/index.js';
import { planOf, receiveWindow } from '../common/plan.js';
import { weighKernel, weighSteps } from '../common/weigh.js';
import {
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
import { type PortableShape, portableWindow, roundWords } from './window.js';

export function portablePlan(layer: PortableShape, { rank, transport }: Place): Plan {
  const kernels = kernelsOver[transport](layer);
  const { layout, stage } = kernels;
  const window = receiveWindow(layer, layout, [...roundWords, 'waited']);
  const memory = transport === 'proxy' ? wireOf(window, layout) : windowOf(window, layout, transport);
  const seen = (placed: Placed) => seenBy(placed, memory, layer.ranks);
  const { dispatch, combine } = layer;
  // Rows are sent from where they lie, or from where they were brought.
  const rows = (placed: Placed) =>
    layer.payloads.map((_, i) => seen(placed).bases[0]! + section(layout, 'brought', i).offset);
  return planOf({
    ...{ layer, rank, memory, layout, rounds: 'finished' },
    phases(given, routes) {
      const bindings = { ...given, win: seen };
      // Kernels count the ranks of the world.
      const alike = { rank, bindings };
      return {
        dispatchSend: [
          ...(stage === null
            ? []
            : [
                step({
                  ...{ ...alike, kernel: stage, blocks: dispatch.blocks, threads: dispatch.threads },
                  summary: 'brings rows to where the network reads them',
                }),
              ]),
          step({
            ...{ ...alike, kernel: kernels.dispatchSend, blocks: dispatch.blocks, threads: dispatch.threads },
            summary: 'sends tokens to the ranks that own their experts, as messages',
            bindings: { ...bindings, rows: stage === null ? undefined : rows },
          }),
        ],
        dispatchRecv: [
          step({
            ...{ ...alike, kernel: kernels.dispatchRecv, ...dispatchRecvSpread(layer) },
            summary: 'waits until all of a dispatch has come',
          }),
        ],
        combineSend: [
          ...weighSteps(kernels.weigh, layer, bindings, routes, rank),
          step({
            ...{ ...alike, kernel: kernels.combineSend, blocks: combine.blocks, threads: combine.threads },
            summary: 'sends partial rows home, as messages',
          }),
        ],
        // A block more than there is work for: the meeting's.
        combineRecv: [
          step({
            ...{
              ...alike,
              kernel: kernels.combineRecv,
              blocks: combine.blocks + 1,
              threads: combine.threads,
            },
            summary: 'adds up partial rows as they come home',
          }),
        ],
      };
    },
  });
}

const windowOf = (window: WindowPlan, layout: Kernels['layout'], transport: TransportName): WindowPlan => ({
  ...window,
  symmetric: transport === 'nvshmem',
  unwritten: [...window.unwritten, section(layout, 'returned')],
});

/** Puts read and write only memory behind the commands, which begins with the rows that were brought, or with the ids where there are no payloads. */
const wireOf = ({ purpose, allOnes }: WindowPlan, layout: Kernels['layout']): WirePlan => ({
  ...{ kind: 'wire', purpose, layout, allOnes },
  front: layout.fields[layout.fields.indexOf(section(layout, 'commands')) + 1]!.offset,
  program: {
    module: new URL('./proxy.js', import.meta.url),
    name: 'portableProxy',
    data: proxyPlan(layout),
  },
});

/** Of a wire there is this rank's own, in which every peer's place is found too. */
function seenBy(placed: Placed, memory: WindowPlan | WirePlan, ranks: number) {
  const window = placed.window(memory);
  return memory.kind === 'window'
    ? window
    : { ...window, bases: new Array<number>(ranks).fill(window.bases[0]!) };
}

/** Made once for a shape: ranks of one process and runs of one check share them, compiled code included. */
function kernelsOf(transport: Transport, shape: PortableShape) {
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
}
type Kernels = ReturnType<typeof kernelsOf>;

const kernelsOver: Readonly<Record<TransportName, (shape: PortableShape) => Kernels>> = {
  windows: remembered((shape: PortableShape) => kernelsOf(windows, shape)),
  nvshmem: remembered((shape: PortableShape) => kernelsOf(nvshmem, shape)),
  proxy: remembered((shape: PortableShape) => kernelsOf(proxied, shape)),
};
