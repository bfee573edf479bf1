/**
 * The hybrid family: NVLink inside a node, and between nodes one rail for each local rank, on which a proxy moves messages.
 */
import { ArgumentError, type HeddleError, UnavailableError } from '../../../base/errors.js';
import type { Topology } from '../../../gpu/index.js';
import { section } from '../../../lang/index.js';
import { type Layer, sharing } from '../../layer/index.js';
import type { Spread } from '../common/parts.js';
import { launch, planOf, receiveWindow, sections } from '../common/plan.js';
import { refusesMasks, refusesRows, refusesTransport } from '../common/refusals.js';
import { weighLaunch, weighSpread } from '../common/weigh.js';
import { type Family, memoized, type Plan, type PlanTarget, type WirePlan } from '../family.js';
import { oneSided } from '../one-sided/family.js';
import { combineRecvKernel } from './combine-recv.js';
import { combineSendKernel } from './combine-send.js';
import { dispatchRecvKernel } from './dispatch-recv.js';
import { dispatchSendKernel } from './dispatch-send.js';
import { hybridKit } from './kit.js';
import { defaultTuning, type HybridTuning, hybridKnobs } from './knobs.js';
import { combineMessage, dispatchMessage } from './messages.js';
import { hybridProxyModule, type PhaseData, type ProxyData } from './proxy.js';
import { linesOf } from './rails.js';
import { type HybridShape, mostPackers } from './shape.js';
import { roundWords } from './window.js';
import { hybridWire, wireRoundWords } from './wire.js';

export const hybrid: Family<HybridTuning> = {
  name: 'hybrid',
  summary: 'NVLink inside a node; between nodes a row goes once to each, by the host’s network',
  reach: 'world',
  travel: {
    rows: 'rails',
    message: 'chunk',
    metadata: 'every rank',
    chunk: (tokens) => Math.max(1, Math.min(32, Math.floor(tokens / 16))),
  },
  knobs: hybridKnobs,
  can: ['masks', 'adds', 'waits', 'plans', 'rounds'],
  refuses,
  defaults: (layer, target) => adapted(defaultTuning(layer, target), layer, target),
  adapt: adapted,
  plan,
};

/** Ranks of a node that a word has bits for. */
const mostLocal = 32;

function refuses(layer: Layer, target: PlanTarget, tuning?: HybridTuning): HeddleError | null {
  if (target.topology.nodes === 1) return oneSided.refuses(layer, target) ?? refusesUnused(tuning);
  return (
    refusesMasks(layer) ??
    refusesTransport(target) ??
    refusesNodes(target.topology) ??
    refusesReplicas(layer, target.topology) ??
    refusesRows(layer) ??
    refusesFew(target, tuning) ??
    refusesWire(layer, target, tuning)
  );
}

/** Bytes of memory that networks reach, which a device allocates at once. */
const mostWire = { cuda: 2 ** 30, sim: 2 ** 31 };

/** All messages of a round have places of their own. */
function refusesWire(layer: Layer, target: PlanTarget, tuning?: HybridTuning): HeddleError | null {
  const { bytes } = hybridWire(shapeOf(layer, target, tuning ?? hybrid.defaults(layer, target)));
  const most = mostWire[target.kind];
  if (bytes <= most) return null;
  const { replicas } = sharing(layer);
  const fitting = Math.floor((layer.maxTokens * most) / bytes / replicas) * replicas;
  const [takes, may] = [bytes, most].map((n) => (n / 2 ** 30).toFixed(1));
  const possible = `at most about ${fitting} between ${target.topology.nodes} nodes: messages would take ${takes} of ${may} GiB`;
  return new ArgumentError('maxTokens', layer.maxTokens, possible);
}

/** On one node the plan is one-sided's, by its rules of thumb. */
function refusesUnused(tuning?: HybridTuning): HeddleError | null {
  if (tuning === undefined) return null;
  const possible = "'one-sided' on one node, where both have the same kernels; hybrid needs several nodes";
  return new ArgumentError('family', 'hybrid', possible);
}

/** The ranks of a group hand each other sums, which is for those that map each other's windows. */
function refusesReplicas(layer: Layer, { localRanks, nodes }: Topology): HeddleError | null {
  const { replicas } = sharing(layer);
  if (localRanks % replicas === 0) return null;
  const inside = `a number that divides the ${localRanks} ranks of a node, so that groups lie inside nodes`;
  return new ArgumentError('replicas', replicas, `${inside}: there are ${nodes}`);
}

function refusesNodes({ members, nodes, localRanks }: Topology): HeddleError | null {
  const equal = members.every((ranks) => ranks.length === localRanks);
  const inOrder = members.flat().every((rank, i) => rank === i);
  const why = !equal
    ? `nodes of one size, but its nodes have ${members.map(({ length }) => length).join(', ')} ranks`
    : !inOrder
      ? `ranks that are numbered node by node, but node 0 has ranks ${members[0]!.join(', ')}`
      : localRanks > mostLocal
        ? `nodes of at most ${mostLocal} ranks, not ${localRanks}`
        : null;
  if (why === null) return null;
  return new UnavailableError(
    `hybrid dispatch and combine between ${nodes} nodes need ${why}`,
    'Start as many ranks on every node, one node after the other, or say how many nodes there are (HEDDLE_NODES)',
  );
}

/** One block of a receive only watches. */
function refusesFew({ sms }: PlanTarget, tuning?: HybridTuning): HeddleError | null {
  if (sms === null) return null;
  if (sms < 2) return new ArgumentError('sms', sms, 'at least 2: one block of a receive watches the network');
  for (const [phase, { blocks }] of Object.entries(tuning ?? {})) {
    if (blocks >= sms) return new ArgumentError(`tuning.${phase}.blocks`, blocks, `less than sms, ${sms}`);
  }
  return null;
}

function adapted({ dispatch, combine }: HybridTuning, layer: Layer, { sms }: PlanTarget): HybridTuning {
  const most = (sms ?? Number.POSITIVE_INFINITY) - 1;
  return {
    dispatch: {
      ...dispatch,
      chunk: Math.min(dispatch.chunk, sharing(layer).turns),
      blocks: Math.min(dispatch.blocks, most),
    },
    combine: { ...combine, blocks: Math.min(combine.blocks, most) },
  };
}

const shapeOf = (layer: Layer, target: PlanTarget, tuning: HybridTuning): HybridShape => {
  const { nodes, localRanks } = target.topology;
  return { ...layer, ...tuning, nodes, localRanks, weigh: weighSpread(layer, tuning.combine, target) };
};

/** On one node there is no network: the plan is one-sided's. */
function plan(layer: Layer, target: PlanTarget, tuning: HybridTuning): Plan {
  if (target.topology.nodes === 1) return oneSided.plan(layer, target, oneSided.defaults(layer, target));
  const shape = shapeOf(layer, target, tuning);
  const kernels = kernelsOf(shape);
  const memory = receiveWindow(layer, kernels.window, [...roundWords, 'waited']);
  const wire: WirePlan = {
    kind: 'wire',
    purpose: 'messages between nodes',
    layout: kernels.wire,
    front: section(kernels.wire, 'dispatchOut').offset,
    allOnes: sections(kernels.wire, wireRoundWords),
    program: {
      ...hybridProxyModule,
      data: proxyData(shape, target.topology, kernels),
      reach: reachOf(shape, target.topology),
    },
  };
  const { dispatch, combine } = shape;
  const { sends, receives, weigh, returns, sums } = kernels;
  /** A block more than there is work for: it watches. */
  const watched = ({ blocks, threads }: Omit<Spread, 'parts'>) => ({ blocks: blocks + 1, threads });
  const fewer = { ...combine, blocks: Math.min(combine.blocks, mostPackers.combine) };
  const plan = planOf({
    ...{ layer, rank: target.rank, memory, layout: kernels.window, rounds: 'finished' },
    bindings: { wire, node: target.topology.node },
    // The same launches, and `weigh` where combine weighs, whether other work stands between halves or not.
    phases: {
      dispatchSend: [launch(sends, dispatch, 'packs messages for other nodes, and stores to its own')],
      dispatchRecv: [
        launch(receives, watched(dispatch), 'forwards what comes from other nodes to its owners'),
      ],
      combineSend: [weigh, launch(returns, fewer, 'sums inside the node what goes home to others')],
      combineRecv: [launch(sums, watched(combine), 'adds up the sums of all nodes')],
    },
  });
  return { ...plan, wire };
}

/** The kernels of a shape, made once: ranks of one process and runs of one check share them, compiled code included. */
const kernelsOf = memoized((shape: HybridShape) => {
  const h = hybridKit(shape);
  return {
    window: h.window,
    wire: h.wire,
    sends: dispatchSendKernel(h),
    receives: dispatchRecvKernel(h),
    weigh: weighLaunch('hybrid_weigh', shape, h.window),
    returns: combineSendKernel(h),
    sums: combineRecvKernel(h),
  };
});
type HybridKernels = ReturnType<typeof kernelsOf>;

/** The ranks of other nodes with this one's number; with masks any of them may take over its rail. */
const reachOf = ({ masks }: HybridShape, { members, node, localRank }: Topology): number[] =>
  members.filter((_, other) => other !== node).flatMap((ranks) => (masks ? ranks : [ranks[localRank]!]));

function proxyData(shape: HybridShape, { node, localRank }: Topology, { wire }: HybridKernels): ProxyData {
  const { nodes, localRanks, dispatch } = shape;
  const phase = (
    name: 'dispatch' | 'combine',
    { rows, row, vectors }: Readonly<Record<'rows' | 'row' | 'vectors', number>>,
  ): PhaseData => ({
    ready: section(wire, `${name}Ready`).offset,
    counts: section(wire, `${name}Rows`).offset,
    came: section(wire, `${name}Came`).offset,
    out: section(wire, `${name}Out`).offset,
    in: section(wire, `${name}In`).offset,
    ...{ room: vectors * 16, rows: rows * 16, row: row * 16 },
  });
  return {
    ...{
      nodes,
      node,
      localRanks,
      localRank,
      lines: linesOf(shape),
      chunk: dispatch.chunk,
      share: sharing(shape).turns,
    },
    phases: [phase('dispatch', dispatchMessage(shape)), phase('combine', combineMessage(shape))],
  };
}
