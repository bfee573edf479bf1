/** The plan of a layer: its window, which lies in GPU memory or where a network reaches it, and the launches of its phases. */
import type { Window } from '../../../gpu/index.js';
import { section } from '../../../lang/index.js';
import { maskPlan } from '../common/masks.js';
import { placingPlan, setPlacing } from '../common/places.js';
import { receivedPlan, routesBuffer, unwrittenSections } from '../common/received.js';
import { failureView } from '../common/waits.js';
import { weighKernel, weighSteps } from '../common/weigh.js';
import {
  type BufferPlan,
  type Place,
  type Placed,
  type PlacingPlan,
  type Plan,
  remembered,
  type Step,
  setSums,
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

/** Values that all steps need: their kernels, and how these see the window. */
interface PlanParts {
  readonly shape: PortableShape;
  readonly kernels: Kernels;
  /** Kernels count the ranks of the world. */
  readonly rank: number;
  readonly memory: WindowPlan | WirePlan;
  readonly routes: BufferPlan | null;
  readonly placing: PlacingPlan | null;
}

export function planOf(shape: PortableShape, { rank, transport }: Place, kernels: Kernels): Plan {
  const { layout } = kernels;
  const memory = transport === 'proxy' ? wireOf(kernels) : windowOf(shape, kernels, transport === 'nvshmem');
  const routes = routesBuffer(shape);
  const placing = placingPlan(shape);
  const parts: PlanParts = { shape, kernels, rank, memory, routes, placing };
  return {
    windows: memory.kind === 'window' ? [memory] : [],
    buffers: [routes, placing?.buffer].filter((buffer) => buffer != null),
    wire: memory.kind === 'wire' ? memory : null,
    phases: {
      dispatchSend: [...stageSteps(parts), dispatchSendStep(parts)],
      dispatchRecv: [dispatchRecvStep(parts)],
      combineSend: [...weighing(parts), combineSendStep(parts)],
      combineRecv: [combineRecvStep(parts)],
    },
    received: receivedPlan(shape, rank, memory, layout, routes),
    placing,
    failure: failureView(memory, layout),
    ...(shape.masks && {
      masks: maskPlan(memory, section(layout, 'masked'), section(layout, 'finished')),
    }),
  };
}

const windowOf = (shape: PortableShape, { layout }: Kernels, symmetric: boolean): WindowPlan => ({
  kind: 'window',
  purpose: 'receive window',
  layout,
  symmetric,
  allOnes: [...roundWords(layout), section(layout, 'experts')],
  unwritten: [...unwrittenSections(shape, layout), section(layout, 'returned')],
});

/** Behind the commands come what puts read and write: the rows that were brought, if there are payloads, or the ids. */
function frontOf(layout: Kernels['layout']): number {
  const { fields } = layout;
  return fields[fields.indexOf(section(layout, 'commands')) + 1]!.offset;
}

const wireOf = ({ layout }: Kernels): WirePlan => ({
  kind: 'wire',
  purpose: 'receive window',
  layout,
  front: frontOf(layout),
  allOnes: [...roundWords(layout), section(layout, 'experts')],
  program: {
    module: new URL('./proxy.js', import.meta.url),
    name: 'portableProxy',
    data: proxyPlan(layout),
  },
});

/** Of a wire there is this rank's own, in which every peer's place is found too. */
function seen({ memory, shape }: PlanParts, placed: Placed): Window {
  const window = placed.window(memory);
  return memory.kind === 'window'
    ? window
    : { ...window, bases: new Array<number>(shape.ranks).fill(window.bases[0]!) };
}

function stageSteps(parts: PlanParts): Step[] {
  const { kernels, shape, rank } = parts;
  if (kernels.stage === null) return [];
  const { blocks, threads } = shape.dispatch;
  return [
    step({
      kernel: kernels.stage,
      summary: 'brings rows to where the network reads them',
      blocks,
      threads,
      rank,
      once: (set, placed) => set.win(seen(parts, placed)),
      each(set, { tokens, rows }) {
        set.tokens(tokens);
        for (let i = 0; i < rows.length; i++) set.rows(i, rows[i]!);
      },
    }),
  ];
}

/** Rows are sent from where they lie, or from where they were brought. */
function dispatchSendStep(parts: PlanParts): Step {
  const { kernels, shape, rank } = parts;
  const { layout, stage } = kernels;
  const { blocks, threads } = shape.dispatch;
  return step({
    kernel: kernels.dispatchSend,
    summary: 'sends tokens to the ranks that own their experts, as messages',
    blocks,
    threads,
    rank,
    once(set, placed) {
      const window = seen(parts, placed);
      set.win(window);
      setPlacing(parts.placing, set, placed);
      if (stage === null) return;
      for (const i of shape.payloads.keys())
        set.rows(i, window.bases[0]! + section(layout, 'brought', i).offset);
    },
    each(set, { tokens, topkIds, topkWeights, rows }) {
      set.tokens(tokens);
      set.topkIds(topkIds);
      set.topkWeights(shape.weights ? topkWeights : topkIds); // which nobody reads then
      if (stage === null) for (let i = 0; i < rows.length; i++) set.rows(i, rows[i]!);
    },
  });
}

const dispatchRecvStep = (parts: PlanParts) =>
  step({
    kernel: parts.kernels.dispatchRecv,
    summary: 'waits until all of a dispatch has come',
    ...dispatchRecvSpread(parts.shape),
    rank: parts.rank,
    once(set, placed) {
      set.win(seen(parts, placed));
      set.limit(placed.limit);
    },
  });

const weighing = (parts: PlanParts): Step[] =>
  weighSteps({
    ...{ kernel: parts.kernels.weigh, spread: parts.shape.weigh, routes: parts.routes, rank: parts.rank },
    window: (placed) => seen(parts, placed),
  });

function combineSendStep(parts: PlanParts): Step {
  const { kernels, shape, rank } = parts;
  const { blocks, threads } = shape.combine;
  return step({
    kernel: kernels.combineSend,
    summary: 'sends partial rows home, as messages',
    blocks,
    threads,
    rank,
    once: (set, placed) => set.win(seen(parts, placed)),
  });
}

/** A block more than there is work for: the meeting's. */
const combineRecvStep = (parts: PlanParts) =>
  step({
    kernel: parts.kernels.combineRecv,
    summary: 'adds up partial rows as they come home',
    blocks: parts.shape.combine.blocks + 1,
    threads: parts.shape.combine.threads,
    rank: parts.rank,
    once(set, placed) {
      set.win(seen(parts, placed));
      set.limit(placed.limit);
    },
    each: setSums,
  });

/** Made once for a shape: ranks of one process and runs of one check share them, compiled code included. */
function kernelsOf(transport: Transport, shape: PortableShape) {
  const layout = portableWindow(shape);
  return {
    layout,
    stage: shape.commands > 0 ? stageKernel(shape, layout) : null,
    dispatchSend: dispatchSendKernel(shape, layout, transport),
    dispatchRecv: dispatchRecvKernel(shape, layout, transport),
    weigh: shape.weigh && weighKernel('portable_weigh', shape, layout, shape.weigh),
    combineSend: combineSendKernel(shape, layout, transport),
    combineRecv: combineRecvKernel(shape, layout, transport),
  };
}
export type Kernels = ReturnType<typeof kernelsOf>;

export const kernelsOver: Readonly<Record<TransportName, (shape: PortableShape) => Kernels>> = {
  windows: remembered((shape: PortableShape) => kernelsOf(windows, shape)),
  nvshmem: remembered((shape: PortableShape) => kernelsOf(nvshmem, shape)),
  proxy: remembered((shape: PortableShape) => kernelsOf(proxied, shape)),
};
