/**
 * The time of a phase: a floor that every phase pays, under which its first bytes hide, and then bytes over NVLink and the
 * network, which overlap in part. Seven positive numbers a phase say how long; scripts/plan fits them to measurements.
 */
import { nodesOf, type RankPlacement } from './routing.js';
import type { Traffic } from './traffic.js';

/** The numbers of one phase of one system on one machine, µs. */
export interface Parameters {
  /** A phase that moves almost nothing: launches, rendezvous. */
  readonly floor: number;
  /** Before the first bytes move. The floor covers it where there are few. */
  readonly lead: number;
  /** A MB over NVLink. */
  readonly nvlink: number;
  /** The network's way there. */
  readonly latency: number;
  /** More for each doubling of the nodes. */
  readonly doubling: number;
  /** To post a message; posting overlaps with bytes, the slower counts. */
  readonly message: number;
  /** A MB through a rank's NICs. */
  readonly nic: number;
}

/** Parameters, and what is known of their worth. */
export interface Fit extends Parameters {
  /** Nine of ten measurements of the source lie within exp(±off) of what its other cells predict. */
  readonly off: number;
  /** The fewest and the most ranks that were measured. */
  readonly ep: readonly [least: number, most: number];
  /** The fewest and the most tokens a rank that were measured. */
  readonly tokens: readonly [least: number, most: number];
}

/** The load of the busiest rank in one phase. */
export interface Work {
  readonly ranks: number;
  readonly nodes: number;
  readonly nvlinkBytes: number;
  readonly networkBytes: number;
  readonly messages: number;
}

export const workOf = ({ busiest: { nvlink, network } }: Traffic, place: RankPlacement): Work => ({
  ranks: place.ranks,
  nodes: nodesOf(place),
  nvlinkBytes: nvlink.bytes,
  networkBytes: network.bytes,
  messages: network.messages,
});

/** The exponent of the norm of floor and bytes: how sharply bytes take over. */
const sharpness = 4;
/** The share of the shorter of NVLink's and the network's time that is not hidden behind the longer. */
const serial = 0.25;

function partsOf(of: Parameters, work: Work) {
  const crosses = work.networkBytes > 0;
  const nvlink = (work.nvlinkBytes / 1e6) * of.nvlink;
  const latency = crosses ? of.latency + of.doubling * Math.log2(work.nodes) : 0;
  const bytes = (work.networkBytes / 1e6) * of.nic;
  const messages = work.messages * of.message;
  const network = latency + Math.max(bytes, messages);
  const transport = Math.max(nvlink, network) + serial * Math.min(nvlink, network);
  return { nvlink, latency, bytes, messages, network, transport };
}

/** µs. */
export function time(of: Parameters, work: Work): number {
  const busy = of.lead + partsOf(of, work).transport;
  return (of.floor ** sharpness + busy ** sharpness) ** (1 / sharpness);
}

/** Names what takes most of a phase's time. */
export function boundOf(of: Parameters, work: Work) {
  const { nvlink, latency, bytes, messages, network, transport } = partsOf(of, work);
  if (of.floor > of.lead + transport || of.lead > transport) return 'floor';
  if (nvlink > network) return 'NVLink';
  if (latency > Math.max(bytes, messages)) return 'network latency';
  return bytes >= messages ? 'NIC bytes' : 'network messages';
}

/** Half the width, as a logarithm, that a range gets one doubling beyond what was measured; it grows with the root of their number. */
const oneBeyond = { ranks: 0.3, tokens: 0.2 };
/** Half the width that a range gets for another machine, kernel or harness than was measured: as much as sources differ about one system. */
const unlike = 0.33;

/** µs, and the range in which nine of ten measurements are expected: of the fit's own machine, kernel and harness, or of others. */
export function predict(fit: Fit, work: Work, tokens: number, of: 'its own' | 'others') {
  const beyond: string[] = [];
  const away = (what: string, value: number, [least, most]: Fit['ep']): number => {
    const doublings = Math.max(0, Math.log2(value / most), Math.log2(least / value));
    const span = least === most ? least : `${least} to ${most}`;
    if (doublings > 0) beyond.push(`beyond the ${what} measured, ${span}`);
    return Math.sqrt(doublings);
  };
  const half = Math.hypot(
    fit.off,
    oneBeyond.ranks * away('EP', work.ranks, fit.ep),
    oneBeyond.tokens * away('tokens', tokens, fit.tokens),
    of === 'others' ? unlike : 0,
  );
  const middle = time(fit, work);
  return {
    ...{ time: middle, low: middle * Math.exp(-half), high: middle * Math.exp(half) },
    bound: boundOf(fit, work),
    // The sizes outside of what was measured; empty where the fit interpolates.
    beyond,
  };
}
