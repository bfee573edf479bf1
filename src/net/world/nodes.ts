/** How the ranks of a world of processes find out which of them share a node. */

import { ArgumentError } from '../../base/errors.js';
import type { Device } from '../../gpu/index.js';
import { nodesByReach, type Topology, topologyOf } from '../../gpu/index.js';
import type { Circle } from './circle.js';
import { messageOf } from './participant.js';

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
