/**
 * The cost of a phase: a floor that every phase pays, under which the first bytes hide, and then bytes over NVLink and the
 * network, which overlap in part. Seven numbers a phase, all above zero. Where the model cannot follow, a fit
 * learns from its cells (fit.ts).
 */
import { nodesOf, type RankPlacement } from './routing.js';
import type { Traffic } from './traffic.js';

/** What each parameter is, and its unit. */
export const parameterUnits = {
  /** The time of a phase that moves almost nothing: launches, rendezvous. */
  floor: 'µs',
  /** Before the first bytes move. The floor covers it where there are few. */
  lead: 'µs',
  /** Over NVLink. */
  nvlink: 'µs a MB',
  /** Of the network's way there. */
  latency: 'µs',
  /** More for each doubling of the nodes. */
  doubling: 'µs for each doubling of nodes',
  /** To post a message; posting overlaps with bytes, the slower counts. */
  message: 'µs a message',
  /** Through a rank's NICs. */
  nic: 'µs a MB',
} as const;

export type ParameterName = keyof typeof parameterUnits;
export type Parameters = Readonly<Record<ParameterName, number>>;
export const parameterNames = Object.keys(parameterUnits) as readonly ParameterName[];

/** How sharply bytes take over from the floor: the exponent of the norm of both. */
const sharpness = 4;
/** The share of the shorter of NVLink's and the network's time that is not hidden behind the longer. */
export const serial = 0.25;

/** The load of the busiest rank, of one phase or of several back to back. */
export interface Work {
  readonly ranks: number;
  readonly nodes: number;
  readonly nvlinkBytes: number;
  readonly networkBytes: number;
  readonly messages: number;
}

export function workOf(phases: readonly Traffic[], place: RankPlacement): Work {
  const all = (pick: (busiest: Traffic['busiest']) => number): number =>
    phases.reduce((sum, { busiest }) => sum + pick(busiest), 0);
  return {
    ranks: place.ranks,
    nodes: nodesOf(place),
    nvlinkBytes: all(({ nvlink }) => nvlink.bytes),
    networkBytes: all(({ network }) => network.bytes),
    messages: all(({ network }) => network.messages),
  };
}

type TimeParts = ReturnType<typeof partsOf>;

/** Where a phase's time goes, µs. The network takes bytes, or posting where that is slower. */
export function partsOf(of: Parameters, work: Work) {
  return {
    floor: of.floor,
    lead: of.lead,
    nvlink: (work.nvlinkBytes / 1e6) * of.nvlink,
    network: {
      latency: work.networkBytes > 0 ? of.latency + of.doubling * Math.log2(work.nodes) : 0,
      bytes: (work.networkBytes / 1e6) * of.nic,
      messages: work.messages * of.message,
    },
  };
}

export const networkTime = ({ network }: TimeParts): number =>
  network.latency + Math.max(network.bytes, network.messages);

/** µs of transport: NVLink and network, overlapped. */
function transportTime(parts: TimeParts): number {
  const network = networkTime(parts);
  return Math.max(parts.nvlink, network) + serial * Math.min(parts.nvlink, network);
}

/** µs of a phase whose transport takes so long. */
export function phaseTime(parts: TimeParts, transport: number): number {
  const busy = parts.lead + transport;
  // Scaled, so that large powers stay finite.
  const most = Math.max(parts.floor, busy);
  return most * ((parts.floor / most) ** sharpness + (busy / most) ** sharpness) ** (1 / sharpness);
}

export function time(of: Parameters, work: Work): number {
  const parts = partsOf(of, work);
  return phaseTime(parts, transportTime(parts));
}

/** What takes most of a phase's time. */
export function boundOf(parts: TimeParts) {
  const { network } = parts;
  const transport = transportTime(parts);
  if (parts.floor > parts.lead + transport || parts.lead > transport) return 'floor';
  if (parts.nvlink > networkTime(parts)) return 'NVLink';
  const largest = Math.max(network.latency, network.bytes, network.messages);
  if (largest === network.bytes) return 'NIC bytes';
  return largest === network.messages ? 'network messages' : 'network latency';
}

/** Nominal figures of a machine, GB/s a GPU and direction. */
export interface Nominal {
  readonly nvlink: number;
  /** 0: nothing goes beyond the node. */
  readonly nic: number;
  /** The rate that plain stores over NVLink were measured to reach; nominal figures say less. */
  readonly stores?: number;
}

/**
 * The assumption before any cell is seen: a centre, and how far off it may be (a standard deviation of the logarithm).
 * NVLink's and the NIC's come from nominal figures; the times of the others are those of kernels on GPUs in general, a guess
 * that is as wide as it is bad. Few cells cannot say everything; what they leave open stays here, and its width shows in
 * the range.
 */
export function priors(of: Nominal): Readonly<Record<ParameterName, readonly [number, number]>> {
  const { nvlink, nic, stores } = of;
  return {
    floor: [15, 1],
    lead: [10, 0.7],
    nvlink: stores === undefined ? [1000 / (0.75 * nvlink), 0.5] : [1000 / stores, 0.1],
    latency: [15, 0.8],
    doubling: [3, 1],
    message: [0.02, 1.5],
    nic: [1000 / (0.92 * (nic || 50)), 0.2],
  };
}
