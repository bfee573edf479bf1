/** Windows in NVSHMEM's symmetric heap: the same place of every rank's, which its own address stands for everywhere. */

import { UnavailableError } from '../../base/errors.js';
import { type CudaDevice, NvshmemHeap, nvshmem } from '../../gpu/cuda/index.js';
import type { Fill, Topology, WindowMemory } from '../../gpu/index.js';
import { together } from './together.js';

/** A world's rank, as far as NVSHMEM asks. */
interface SymmetricPlace {
  readonly rank: number;
  readonly ranks: number;
  readonly topology: Topology;
  readonly device: CudaDevice;
  /** Whether it is the only rank of its process. */
  readonly alone: boolean;
  /** Aborted when a rank is lost. */
  readonly lost: AbortSignal;
  gather(bytes: Uint8Array, operation: string): Promise<Uint8Array[]>;
}

/** Brings the ranks together in NVSHMEM; where one cannot, all throw. */
export async function joinNvshmem(place: SymmetricPlace): Promise<void> {
  const { rank, ranks, device, lost, gather } = place;
  const [id] = await together(gather, 'opening NVSHMEM', async () => {
    const refusal = refuses(place);
    if (refusal !== null) throw refusal;
    nvshmem();
    return rank === 0 ? NvshmemHeap.uniqueId() : new Uint8Array(0);
  });
  await together(gather, 'joining NVSHMEM', async () => {
    device.joinNvshmem(id!, rank, ranks, lost);
    return new Uint8Array(0);
  });
}

function refuses({ alone, topology }: SymmetricPlace): UnavailableError | null {
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
  { device, gather }: Pick<SymmetricPlace, 'device' | 'gather'>,
  bytes: number,
  purpose: string,
  fills: readonly Fill[],
): Promise<WindowMemory> {
  let own!: WindowMemory;
  await together(gather, `allocating the ${purpose}s`, async () => {
    own = device.allocateSymmetric(bytes, purpose, fills);
    return new Uint8Array(0);
  });
  return own;
}
