/** Memory that all ranks make in the same step: windows that a node's ranks map, and those in NVSHMEM's symmetric heap. */

import { HeddleError, messageOf, UnavailableError } from '../../base/errors.js';
import { type CudaDevice, NvshmemHeap, nvshmem } from '../../gpu/cuda/index.js';
import type { Device, Fill, PeerMemory, Topology, Window, WindowMemory } from '../../gpu/index.js';

/** The windows of all ranks of this rank's node, mapped here: `rank` and `bases` count those, from 0. */
export interface SharedWindow extends Window {
  /** The world's numbers of the ranks that map it: `bases[i]` is the window of rank `ranks[i]`. */
  readonly ranks: readonly number[];
  /** This rank's own part. */
  readonly own: WindowMemory;
  /** Unmaps the peers' parts and frees this rank's. Every rank must be done with it. */
  close(): void;
}

/** The part of a circle that `allOrNone` needs. */
type Gather = (bytes: Uint8Array, operation: string) => Promise<Uint8Array[]>;

/** A world's rank, as far as its windows ask. */
interface RankHere<D extends Device> {
  readonly rank: number;
  readonly topology: Topology;
  readonly device: D;
  readonly gather: Gather;
}

/**
 * Gives every rank what all ranks made in a step that each of them takes. Where one fails, all throw at once: that one
 * its own error, the others one that quotes it. @internal
 */
export async function allOrNone(
  gather: Gather,
  doing: string,
  step: () => Promise<Uint8Array | undefined>,
): Promise<Uint8Array[]> {
  const [done, failed] = [0, 1];
  const say = (what: number, bytes: Uint8Array) => gather(Buffer.concat([Buffer.of(what), bytes]), doing);
  let made: Uint8Array;
  try {
    made = (await step()) ?? new Uint8Array(0);
  } catch (error) {
    await say(failed, Buffer.from(messageOf(error))).catch(() => {}); // what went wrong first says more
    throw error;
  }
  const all = await say(done, made);
  const fallen = all.findIndex(([what]) => what === failed);
  if (fallen === -1) return all.map((bytes) => bytes.subarray(1));
  const why = Buffer.from(all[fallen]!.subarray(1)).toString();
  throw new HeddleError('HEDDLE_PEER_FAILED', `rank ${fallen} failed at ${doing}: ${why}`);
}

/** A window of which other ranks' parts can be mapped anew, each where it is: kernels hold the addresses. */
export interface MappedWindow {
  readonly window: SharedWindow;
  readonly purpose: string;
  /** The part of this rank is now what the handle names. Of no effect where it was before. */
  map(rank: number, handle: Uint8Array): Promise<void>;
}

/**
 * Allocates this rank's window and maps those of its node. Every rank calls it; where one cannot, all throw. Where a place is empty, or
 * this process is outside, there is only room: what lies there is mapped when a rank is admitted.
 */
export async function mapWindows(
  { rank, topology, device, outside, gather }: RankHere<Device> & { readonly outside: boolean },
  bytes: number,
  purpose: string,
  fills: readonly Fill[],
): Promise<MappedWindow> {
  const undo: (() => void)[] = [];
  const close = () => {
    for (const step of undo.splice(0).reverse()) step();
  };
  const ranks = topology.members[topology.node]!;
  const others = new Map<number, { readonly memory: PeerMemory; handle: Uint8Array | null }>();
  try {
    let own!: WindowMemory;
    const handles = await allOrNone(gather, `exchanging the ${purpose}s`, async () => {
      own = device.allocateWindow(bytes, purpose, fills);
      undo.push(() => own.free());
      return own.handle;
    });
    const addressOf = async (peer: number): Promise<number> => {
      if (peer === rank) return own.address;
      const handle = outside || handles[peer]!.length === 0 ? null : handles[peer]!;
      const memory = await (handle ? device.openWindow(handle) : device.reserveWindow(bytes, purpose));
      undo.push(() => memory.close());
      others.set(peer, { memory, handle });
      return memory.address;
    };
    let bases: number[] = [];
    // A handle is good only while its owner holds it: nobody goes on, and perhaps frees, before all have mapped.
    await allOrNone(gather, `mapping the ${purpose}s`, async () => {
      bases = await Promise.all(ranks.map(addressOf));
    });
    const map = async (rank: number, handle: Uint8Array): Promise<void> => {
      const part = others.get(rank);
      if (part === undefined || (part.handle && Buffer.compare(part.handle, handle) === 0)) return;
      part.handle = null;
      await part.memory.map(handle);
      part.handle = handle;
    };
    return { window: { own, rank: topology.localRank, ranks, bases, bytes, close }, purpose, map };
  } catch (error) {
    close();
    throw error;
  }
}

/** A world's rank, as far as NVSHMEM asks. */
interface SymmetricRank extends RankHere<CudaDevice> {
  readonly ranks: number;
  readonly alone: boolean;
  /** Aborted when a rank is lost. */
  readonly lost: AbortSignal;
}

/** Brings the ranks together in NVSHMEM; where one cannot, all throw. */
export async function joinNvshmem(place: SymmetricRank): Promise<void> {
  const { rank, ranks, device, lost, gather } = place;
  const [id] = await allOrNone(gather, 'opening NVSHMEM', async () => {
    const refusal = refuses(place);
    if (refusal !== null) throw refusal;
    nvshmem();
    return rank === 0 ? NvshmemHeap.uniqueId() : undefined;
  });
  await allOrNone(gather, 'joining NVSHMEM', async () => {
    device.joinNvshmem(id!, rank, ranks, lost);
  });
}

function refuses({ alone, topology }: SymmetricRank): UnavailableError | null {
  if (!alone)
    return new UnavailableError(
      'NVSHMEM knows one rank a process, but this one is all ranks of its world',
      'Start a process for each: `heddle run -n 2 program.ts`, with World.join() in it',
    );
  if (topology.nodes > 1)
    return new UnavailableError(
      `Heddle uses NVSHMEM inside one node, but this world has ${topology.nodes}`,
      'Start ranks on GPUs that share NVLink: `heddle doctor` prints which do',
    );
  return null;
}

/** This rank's part of a window in the heap. Every rank calls it, after `joinNvshmem`. */
export async function allocateSymmetric(
  { device, gather }: Pick<SymmetricRank, 'device' | 'gather'>,
  bytes: number,
  purpose: string,
  fills: readonly Fill[],
): Promise<WindowMemory> {
  let own!: WindowMemory;
  await allOrNone(gather, `allocating the ${purpose}s`, async () => {
    own = device.allocateSymmetric(bytes, purpose, fills);
  });
  return own;
}
