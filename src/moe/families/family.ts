/**
 * A family is a way for rows to travel. Every family delivers the same bytes to the same slots; what differs is
 * the memory it needs and the kernels that a phase consists of. It says both as a value, a plan, which ExpertParallel
 * carries out without knowing the family.
 */

import { ArgumentError, type HeddleError } from '../../base/errors.js';
import { callSite, type Device, type Stream, type Topology, type Window } from '../../gpu/index.js';
import type { Field, Kernel, Layout, ParamSpecs } from '../../lang/index.js';
import { combineWeighs, type Dtype, type Layer, sourceWeighs } from '../layer/index.js';
import type { KnobTable, Tuning } from './knobs.js';

/** An H100 or H200, for which plans are made where no device is at hand. */
export const usualChip = { multiprocessors: 132, capability: [9, 0] } as const;

/** The conditions that a plan is made for: the device, the topology, and the launches that the caller wants. */
export interface PlanTarget {
  readonly kind: 'sim' | 'cuda';
  /** Multiprocessors of each rank's device. */
  readonly multiprocessors: number;
  readonly capability: Device['capability'];
  readonly topology: Topology;
  /** Sends and receives are launches of their own, with other work between them. */
  readonly split: boolean;
  /** The most multiprocessors that a launch may take, a block each; null for all there are. */
  readonly sms: number | null;
  /** The transport of a family that leaves it open. */
  readonly transport: TransportName;
  /** The rank whose plan it is. Plans of all ranks differ in nothing that others see. */
  readonly rank: number;
  /** Whether the host can copy memory beside launches, as `Plan.copied` asks. An exported plan only launches. */
  readonly copies?: boolean;
}

/** Windows that ranks map of each other; or NVSHMEM's symmetric heap, and its puts. */
export const transports = ['windows', 'nvshmem'] as const;
export type TransportName = (typeof transports)[number];

/** How rows travel: what `heddle plan` counts. */
export interface Travel {
  /**
   * A row for every route; one for every (token, rank that owns any of its experts); or by rails: one for every (token,
   * other node), to the rank with the sender's place there, and from it over NVLink to each owner.
   */
  readonly rows: 'expert' | 'rank' | 'rails';
  /** A message between nodes holds one row, all rows for a peer, or those of a chunk of tokens for a peer. */
  readonly message: 'row' | 'peer' | 'chunk';
  /** Ids and weights go to every rank for every token, or only with the rows. */
  readonly metadata: 'every rank' | 'rows';
  /** Tokens of a chunk, where a rank has so many. Chunks that hold no row travel too. */
  readonly chunk?: (tokens: number) => number;
}

export interface Family<T extends Tuning = Tuning> {
  readonly name: string;
  readonly summary: string;
  /** How far its rows travel: between ranks of a node, or of all nodes of a world. */
  readonly reach: 'node' | 'world';
  readonly travel: Travel;
  readonly knobs: KnobTable;
  /** Why this family cannot carry the layer there, or not with this tuning; null where it can. */
  refuses(layer: Layer, target: PlanTarget, tuning?: T): HeddleError | null;
  /** The rules of thumb, where nothing was measured. */
  defaults(layer: Layer, target: PlanTarget): T;
  /** A tuning that was found for another layer or place, changed as far as this one needs it. */
  adapt(tuning: T, layer: Layer, target: PlanTarget): T;
  /**
   * What not every family's kernels can: leave ranks out of rounds, add sums to what the caller's tensor holds, count how long they wait
   * for each peer, take the rows of a plan in combine, bring home a row for each route, round rows in dispatch. Default: nothing of it.
   */
  readonly can?: readonly ('masks' | 'adds' | 'waits' | 'plans' | 'routes' | 'rounds')[];
  /** The layer and the tuning are ones that `refuses` lets pass. */
  plan(layer: Layer, target: PlanTarget, tuning: T): Plan;
  /** The tuning with which a whole dispatch may follow another with no combine between them, where there is one: to measure it alone. */
  alone?(tuning: T): T;
}

/** Why the family cannot carry the layer there, for lack of what the layer asks for or by its own rules; null where it can. */
export function refusalOf(family: Family, ...asked: Parameters<Family['refuses']>): HeddleError | null {
  const [layer] = asked;
  const { can = [] } = family;
  if (layer.masks && !can.includes('masks')) {
    const possible = `'throw' with family '${family.name}', which leaves no rank out: ask for 'portable', or start the world anew after a loss (heddle run --restart)`;
    return new ArgumentError('onLoss', 'mask', possible);
  }
  if (layer.output.adds && !can.includes('adds'))
    return new ArgumentError('adds', true, `false with family '${family.name}', which overwrites`);
  if (layer.waits && !can.includes('waits'))
    return new ArgumentError('waits', true, `false with family '${family.name}', which does not count them`);
  const { weighting } = layer.output;
  if (combineWeighs(layer) && !can.includes('plans')) {
    const must = `'experts' with family '${family.name}', whose combine takes no rows of a plan`;
    return new ArgumentError('weighting', weighting, must);
  }
  if (sourceWeighs(layer) && !can.includes('routes')) {
    const must = `'experts' or 'plan' with family '${family.name}', which adds up rows before they are home: so it carries no invariant layer`;
    return new ArgumentError('weighting', weighting, must);
  }
  const rounded = layer.payloads.find(({ rounded }) => rounded !== undefined);
  if (rounded !== undefined && !can.includes('rounds')) {
    const must = `left out with family '${family.name}', whose dispatch rounds no rows: bring e4m3 and scales as two payloads`;
    return new ArgumentError(`payloads.${rounded.name}.rounds`, rounded.rounded, must);
  }
  return family.refuses(...asked);
}

/** A phase that has nothing to do has no steps. */
export const phases = ['dispatchSend', 'dispatchRecv', 'combineSend', 'combineRecv'] as const;
export type Phase = (typeof phases)[number];

export interface Plan {
  readonly windows: readonly WindowPlan[];
  readonly buffers: readonly BufferPlan[];
  /** Null where no row crosses a network. */
  readonly wire: WirePlan | null;
  readonly phases: Readonly<Record<Phase, readonly Step[]>>;
  /** The host copies the rows of this rank's tokens to its own slots, beside a dispatch or its send. */
  readonly copied?: boolean;
  readonly received: ReceivedPlan;
  /** Memory that each layer brings to its rounds, however many share the rest of the plan; null where a layer needs none. */
  readonly ofLayer: BufferPlan | null;
  /** Null where no placement says where experts live; a family that has none refuses layers that are `placed`. */
  readonly placing: PlacingPlan | null;
  /** Four words of a window, as common/waits.ts has them. */
  readonly failure: View;
  /** Given for a layer with masks. */
  readonly masks?: {
    /** Four words with a bit for each rank, as common/masks.ts has them: the host writes them to leave ranks out. */
    readonly masked: View;
    /** The word that counts rounds which have come to their last launch: the host reads it. */
    readonly rounds: View;
  };
  /** Given for a layer that counts waits: [phase][round][peer], 64-bit nanoseconds; and of each round its number and its layer. See common/waits.ts. */
  readonly waits?: { readonly waited: View; readonly waiters: View };
}

/** Memory that peers reach: the same layout on every rank. */
export interface WindowPlan {
  readonly kind: 'window';
  /** For errors and findings: 'receive window'. */
  readonly purpose: string;
  readonly layout: Layout;
  /** It lies in NVSHMEM's symmetric heap: its puts reach it, loads and stores of peers do not. */
  readonly symmetric?: boolean;
  /**
   * Windows start as zeros, except these, of which every bit is set: among them all words that count rounds, as the first round has the
   * number 0 (common/waits.ts).
   */
  readonly allOnes: readonly Field[];
  /** Memory that holds nothing before a kernel has written it: to read it earlier is a mistake, which the checker reports. */
  readonly unwritten: readonly Field[];
}

/** Memory that networks reach, the same layout on every rank; and the proxy that moves its bytes. */
export interface WirePlan {
  readonly kind: 'wire';
  readonly purpose: string;
  readonly layout: Layout;
  /** Where the sections begin that NICs reach; the host sees those before it only, if the others lie in the GPU's memory. */
  readonly front: number;
  /** It begins as zeros, except these, of which every bit is set. */
  readonly allOnes?: readonly Field[];
  /** The proxy's program: what a module exports, and what it is given. Threads share no functions, so it is named. */
  readonly program: {
    readonly module: URL;
    readonly name: string;
    readonly data: unknown;
    /** The ranks that it writes to, which also write to this one; all others unless it is said. */
    readonly reach?: readonly number[];
  };
}

/** Memory of this rank alone. */
export interface BufferPlan {
  readonly kind: 'buffer';
  readonly purpose: string;
  readonly bytes: number;
}

/** A tensor in memory that the plan asks for. */
export interface View {
  readonly in: WindowPlan | BufferPlan;
  readonly offset: number;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
}

/** Where dispatch leaves what arrives, and where combine expects what the experts made of it. */
export interface ReceivedPlan {
  readonly experts: View;
  readonly weights: View | null;
  readonly counts: View | null;
  /** u32 [1]: slots of tokens behind so many of each source are empty. Null where a family does not say so. */
  readonly reached: View | null;
  /** By name. */
  readonly payloads: Readonly<Record<string, View>>;
  readonly output: View;
}

/** Where experts live, as kernels read it (common/places.ts). */
export interface PlacingPlan {
  /** The layer's own, i32 [experts, lots]: the place that a route goes to. */
  readonly table: View;
  /** i32 [maxTokens, topK]: where the routes of this round went. Combine is given it as the round's `topkIds`. */
  readonly places: View;
  /** The layer's own, u32 [2, experts]: routes that went to a place of the expert; those that went nowhere. */
  readonly counts: View;
}

/** The inputs and outputs of a round: addresses in this rank's memory. Of a phase that lacks one, 0. */
export interface Round {
  tokens: number;
  topkIds: number;
  topkWeights: number;
  /** [payload]: its rows. */
  readonly rows: number[];
  /** Where combine leaves the sums. */
  out: number;
  /** Where combine takes the rows of a plan: the rows, and how many there are; of each route its row and its weight. */
  made: number;
  madeRows: number;
  scatter: number;
  routeWeights: number;
  /** What the round's layer has of a PlacingPlan: the table, the places, the counts; nothing where there is none. */
  placing: readonly number[];
  /** The number of the round's layer. */
  layer: number;
}

/** A plan's memory, where it lies on this rank. */
export interface PlanMemory {
  /** This rank in its node: the kernels' `g.rank`. */
  readonly rank: number;
  /** Microseconds that a kernel waits for a peer. */
  readonly limit: number;
  /** A wire has one entry, 0: kernels reach this rank's own memory only. */
  window(of: WindowPlan | WirePlan): Window;
  address(of: BufferPlan): number;
}

/** One launch of a phase. */
export interface Step<P extends ParamSpecs = ParamSpecs> {
  readonly kernel: Kernel<P>;
  /** A line about the kernel, which lists of kernels show. */
  readonly summary: string;
  readonly blocks: number;
  readonly threads: number;
  readonly bindings: Bindings;
}

/** What a parameter of a kernel is bound to: memory of the plan, a number, what comes of where the memory lies; or in each round the ids. */
type Binding = WindowPlan | WirePlan | number | 'topkIds' | ((memory: PlanMemory) => Bound);
type Bound = Window | readonly number[];

/** By the parameter's name. */
export type Bindings = {
  readonly [N in 'win' | 'wire' | 'node' | 'rows' | 'out']?: Binding | undefined;
};

type Setter = (...value: readonly (number | Window)[]) => void;

/** How each parameter that differs from round to round is set, unless it is bound. */
const perRound: Readonly<Record<string, (set: Setter, round: Round) => void>> = {
  tokens: (set, { tokens }) => set(tokens),
  topkIds: (set, { topkIds }) => set(topkIds),
  topkWeights: (set, { topkWeights }) => set(0, topkWeights),
  rows(set, { rows }) {
    for (let i = 0; i < rows.length; i++) set(i, rows[i]!);
  },
  out: (set, { out }) => set(out),
  made: (set, { made }) => set(0, made),
  madeRows: (set, { madeRows }) => set(0, madeRows),
  scatter: (set, { scatter }) => set(0, scatter),
  routeWeights: (set, { routeWeights }) => set(0, routeWeights),
  layer: (set, { layer }) => set(0, layer),
  placing(set, { placing }) {
    for (let i = 0; i < placing.length; i++) set(i, placing[i]!);
  },
};

function bind(set: Setter, binding: Exclude<Binding, string>, memory: PlanMemory): void {
  if (typeof binding === 'number') set(binding);
  else {
    const value = typeof binding === 'function' ? binding(memory) : memory.window(binding);
    if (!('length' in value)) set(value);
    else for (const [i, address] of value.entries()) set(i, address);
  }
}

/** A parameter that kernels of other shapes have. */
const isEmptyList = (spec: ParamSpecs[string]): boolean =>
  typeof spec === 'object' && spec.kind === 'list' && spec.length === 0;

/** Sets the parameters of a step's kernel by their names: those that are bound once, `limit` too, the others for each round. */
export async function loadStep<P extends ParamSpecs>(
  { kernel, blocks, threads, bindings: own }: Step<P>,
  device: Pick<Device, 'load'>,
  memory: PlanMemory,
) {
  const known = ['limit', ...Object.keys(perRound), ...Object.keys(own)];
  const stranger = Object.keys(kernel.params).find((name) => !known.includes(name));
  if (stranger !== undefined) {
    const possible = `one that its step sets: ${known.join(', ')}`;
    throw new ArgumentError(`a parameter of ${kernel.name}`, stranger, possible);
  }
  const shape = { grid: blocks, block: threads, programmatic: true, rank: memory.rank };
  const site = await callSite(device, kernel, shape);
  const setters: readonly [string, Setter][] = Object.entries(site.set);
  const bindings: Readonly<Record<string, Binding | undefined>> = { ...own, limit: memory.limit };
  const each: { readonly set: Setter; readonly take: (set: Setter, round: Round) => void }[] = [];
  for (const [name, set] of setters) {
    if (isEmptyList(kernel.params[name]!)) continue;
    const bound = bindings[name];
    if (bound === undefined || typeof bound === 'string') each.push({ set, take: perRound[bound ?? name]! });
    else bind(set, bound, memory);
  }
  return {
    ...{ program: site.program, blocks, threads },
    /** Sets what the round brings, for the launches that follow. */
    take(round: Round): void {
      for (const one of each) one.take(one.set, round);
    },
    launch: (stream: Stream): void => site.launch(stream),
  };
}
export type LoadedStep = Awaited<ReturnType<typeof loadStep>>;

/** A process rarely has more layers of different shapes at a time; what falls out is only made again. */
const mostKept = 64;

/** A function that makes something of a plain value, and gives the same thing again for an equal value. */
export function memoized<K extends object, V>(make: (key: K) => V): (key: K) => V {
  const kept = new Map<string, V>();
  return (key) => {
    const text = JSON.stringify(key);
    const known = kept.get(text);
    if (known !== undefined) return known;
    const made = make(key);
    const [oldest] = kept.keys();
    if (kept.size === mostKept) kept.delete(oldest!);
    kept.set(text, made);
    return made;
  };
}
