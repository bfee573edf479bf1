/** How the ranks of a world of processes find their GPUs, and which of them share a node. */

import { randomUUID } from 'node:crypto';
import { ArgumentError, messageOf, RankLostError, UnavailableError } from '../../base/errors.js';
import { type Device, nodesByReach, type Topology, topologyOf } from '../../gpu/index.js';
import type { Circle } from './circle.js';
import type { JoinOptions } from './environment.js';
import { findPlace, OutsideCircle, ProcessCircle } from './process-circle.js';

/** The number of a rank's GPU among the `visible` ones. A process that was shown a single one takes that. */
export function ordinalFor(rank: number, localRank: number | undefined, visible: number): number {
  const ordinal = visible === 1 ? 0 : (localRank ?? rank);
  if (ordinal < visible) return ordinal;
  throw new UnavailableError(
    `Rank ${rank} needs GPU ${ordinal}, but this process sees ${visible}`,
    'Start fewer ranks on this machine, make more GPUs visible (CUDA_VISIBLE_DEVICES), or simulate them: `heddle run --device sim`',
  );
}

/** Refuses ranks that took the same GPU: kernels that wait for each other would take turns on it. */
export function requireOwnGpus(uuids: readonly string[]): void {
  for (const [rank, uuid] of uuids.entries()) {
    const first = uuids.indexOf(uuid);
    if (first === rank) continue;
    throw new UnavailableError(
      `Ranks ${first} and ${rank} would share a GPU (${uuid})`,
      'Start one rank a GPU; where a launcher shows each process one GPU, it must show each another ' +
        '(CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)',
    );
  }
}

/** Where HEDDLE_NODE names every rank's node, those; else the ranks whose devices can map each other's memory. */
export async function findTopology(
  circle: Circle,
  device: Device,
  named: string | undefined,
): Promise<Topology> {
  const gathered = await circle.allGather(Buffer.from(named ?? ''), 'the nodes: names');
  const names = gathered.map((bytes) => Buffer.from(bytes).toString());
  if (names.every((name) => name === '')) return findByMapping(circle, device);
  const silent = names.indexOf('');
  if (silent === -1) return topologyOf(names, circle.rank);
  throw new ArgumentError('HEDDLE_NODE', names, `set on every rank or on none; rank ${silent} lacks it`);
}

/** Asking machines who they are would not tell: NVLink may reach beyond one, and a container may keep ranks of one apart. */
async function findByMapping(circle: Circle, device: Device): Promise<Topology> {
  const { rank } = circle;
  if (circle.ranks === 1) return topologyOf([0], 0);
  const own = offer(device);
  try {
    const offers = await circle.allGather(own.offered, 'the nodes: windows');
    const reasons = await Promise.all(
      offers.map((offered, peer) => (peer === rank ? null : whyUnreachable(device, offered))),
    );
    const reach = Uint8Array.from(reasons, (reason) => (reason === null ? 1 : 0));
    // A window must stay until everybody has tried to map it: this meeting is also for that.
    const reaches = await circle.allGather(reach, 'the nodes: who reaches whom');
    const nodeOf = nodesByReach(reaches.map((row) => [...row].map((reached) => reached === 1)));
    return topologyOf(nodeOf, rank, reasons.find((reason) => reason !== null) ?? null);
  } finally {
    own.free();
  }
}

const [here, none] = [0, 1];

/** A small window's handle, or why there is none: a device that makes no windows is a node of its own. */
function offer(device: Device): { offered: Uint8Array; free(): void } {
  try {
    const window = device.allocateWindow(16, 'window that finds nodes');
    return { offered: Buffer.concat([Buffer.of(here), window.handle]), free: () => window.free() };
  } catch (error) {
    return { offered: Buffer.concat([Buffer.of(none), Buffer.from(messageOf(error))]), free: () => {} };
  }
}

/** Null where the memory that was offered can be mapped. */
async function whyUnreachable(device: Device, offered: Uint8Array): Promise<string | null> {
  const bytes = offered.subarray(1);
  if (offered[0] === none) return Buffer.from(bytes).toString();
  try {
    (await device.openWindow(bytes)).close();
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

/** Finds out with all ranks of a circle of processes which of them share a node. */
export type FindTopology = (circle: Circle) => Promise<Topology>;

interface Met {
  readonly circle: Circle;
  readonly topology: Topology;
}

/**
 * A process that was taken in meets the others as they do after a renewal, which starts over without ranks that are lost meanwhile.
 * One that takes the place of a rank meets nobody yet, and has the nodes of `outside`.
 */
export async function joinAndMeet(
  options: JoinOptions,
  find: FindTopology,
  outside: () => Topology,
): Promise<Met> {
  const place = findPlace(options);
  if (place.rejoin !== undefined) return { circle: OutsideCircle.of(options), topology: outside() };
  let circle = await ProcessCircle.join(options);
  const newcomer = place.newcomer !== undefined;
  try {
    for (;;) {
      try {
        if (newcomer) await circle.barrier('renewal');
        return { circle, topology: await find(circle) };
      } catch (error) {
        if (!newcomer || !(error instanceof RankLostError)) throw error;
      }
      circle = (await circle.renew()).latest as ProcessCircle;
    }
  } catch (error) {
    // Where a rank was lost, the others know it already; to abandon them as well would make this one lost to them, too.
    if (!circle.signal.aborted) circle.abandon(messageOf(error));
    await circle.dispose();
    throw error;
  }
}

const simulatedApart = 'their GPUs are simulated by other processes';

/** A process whose GPUs are simulated is several ranks, which share a machine and make a node: joins with `ranksHere` ranks from the process's own on. */
export async function joinSimulated(options: JoinOptions, ranksHere: number) {
  const { rank: first, ranks } = findPlace(options);
  const { SimMachine } = await import('../../gpu/sim/index.js');
  const machine = SimMachine.create({ ranks: ranksHere });
  const process = Buffer.from(randomUUID());
  const find = async (circle: Circle) => {
    const processes = await circle.allGather(process, 'the nodes: processes');
    const nodeOf = processes.map((bytes) => Buffer.from(bytes).toString());
    return topologyOf(nodeOf, circle.rank, simulatedApart);
  };
  // The nodes of a process that takes the places of ranks are as processes of its size make them.
  const nodeOf = Array.from({ length: ranks }, (_, rank) => Math.floor(rank / ranksHere));
  const joined = await Promise.allSettled(
    Array.from({ length: ranksHere }, (_, i) => {
      const rank = first + i;
      const outside = () => topologyOf(nodeOf, rank, simulatedApart);
      return joinAndMeet({ ...options, rank, localRank: i }, find, outside);
    }),
  );
  const here = joined.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  for (const result of joined) {
    if (result.status === 'fulfilled') continue;
    for (const { circle } of here) if (!circle.signal.aborted) circle.abandon(messageOf(result.reason));
    await Promise.all(here.map(({ circle }) => circle.dispose()));
    throw result.reason;
  }
  return here.map((met) => ({ ...met, machine, find }));
}
