/** How the ranks of a world of processes find their GPUs, and which of them share a node. */

import { randomUUID } from 'node:crypto';
import { ArgumentError, messageOf, UnavailableError } from '../../base/errors.js';
import { type Device, evenNodes, nodesByReach, type Topology, topologyOf } from '../../gpu/index.js';
import type { Circle } from './circle.js';
import type { JoinOptions, Place } from './environment.js';
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

/** The nodes of a world: as many equal ones as it was told, or else the ranks whose devices can map each other's memory. */
export async function findTopology(
  circle: Circle,
  device: Device,
  place: Pick<Place, 'places' | 'nodes'>,
): Promise<Topology> {
  await requireSamePlaces(circle, place);
  const { places, nodes } = place;
  if (nodes === undefined && places === circle.ranks) return findByMapping(circle, device);
  return topologyOf(evenNodes(places, nodes ?? 1), circle.rank);
}

async function requireSamePlaces(circle: Circle, { places, nodes }: Pick<Place, 'places' | 'nodes'>) {
  const mine = JSON.stringify([places, nodes ?? 'none']);
  const all = await circle.allGather(Buffer.from(mine), 'the places');
  for (const [rank, bytes] of all.entries()) {
    const theirs = Buffer.from(bytes).toString();
    if (theirs !== mine)
      throw new ArgumentError(
        'HEDDLE_PLACES, HEDDLE_NODES',
        mine,
        `the same on every rank; rank ${rank} has ${theirs}`,
      );
  }
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

/** A circle of processes, and which of its ranks share a node. */
interface Met {
  readonly circle: Circle;
  readonly topology: Topology;
}

/** Joins, and finds the nodes with all ranks. A process that takes an empty place meets nobody yet, and has the nodes of `outside`. */
export async function joinAndMeet(
  options: JoinOptions,
  find: (circle: Circle) => Promise<Topology>,
  outside: () => Topology,
): Promise<Met> {
  if (findPlace(options).rejoin !== undefined)
    return { circle: OutsideCircle.of(options), topology: outside() };
  const circle = await ProcessCircle.join(options);
  try {
    return { circle, topology: await find(circle) };
  } catch (error) {
    // Where a rank was lost, the others know it already. If this one abandoned them, they would count it as lost, too.
    if (!circle.signal.aborted) circle.abandon(messageOf(error));
    await circle.dispose();
    throw error;
  }
}

const simulatedApart = 'their GPUs are simulated by other processes';

/** Joins with `ranksHere` ranks, from the process's own on, whose GPUs this process simulates: they share a machine and make a node. */
export async function joinSimulated(options: JoinOptions, ranksHere: number) {
  const { rank: first, ranks, places } = findPlace(options);
  const { SimMachine } = await import('../../gpu/sim/index.js');
  const machine = SimMachine.create({ ranks: ranksHere });
  const process = Buffer.from(randomUUID());
  // Processes that are not there yet are taken to be as large as this one.
  const nodeOf = Array.from({ length: places }, (_, rank) => Math.floor(rank / ranksHere));
  const find = async (circle: Circle) => {
    await requireSamePlaces(circle, { places, nodes: undefined });
    const processes = await circle.allGather(process, 'the nodes: processes');
    const found = processes.map((bytes) => Buffer.from(bytes).toString());
    return topologyOf(places === ranks ? found : nodeOf, circle.rank, simulatedApart);
  };
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
  return here.map((met) => ({ ...met, machine }));
}
