/**
 * The structures that NVSHMEM is started with, as bytes. Each says its own version and size in its first word, so a
 * library that has others refuses them; which of its versions have these is known from their headers.
 */
import { UnavailableError } from '../../../base/errors.js';
import type { Address } from '../../../base/native/index.js';

const uniqueIdBytes = 128;
const attributesBytes = 144;

/** A structure's first word: the first form of it, and its size. */
const first = (bytes: number): number => 2 ** 16 + bytes;
const argumentsBytes = 128;
const uniqueIdArgumentsBytes = 24;

/** Place for a unique id, as the library wants it before it fills it in. */
export function blankUniqueId(): Uint8Array {
  const id = new Uint8Array(uniqueIdBytes);
  new DataView(id.buffer).setUint32(0, first(uniqueIdBytes), true);
  return id;
}

/**
 * The attributes of one of `ranks` ranks that start NVSHMEM together. The unique id lies at `id`, and must stay there
 * until all have started.
 */
export function attributes(id: Address, rank: number, ranks: number): Uint8Array {
  const bytes = new Uint8Array(attributesBytes);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, first(attributesBytes), true);
  // At 8 a communicator of MPI would lie.
  view.setUint32(16, first(argumentsBytes), true);
  view.setUint32(24, first(uniqueIdArgumentsBytes), true);
  view.setBigUint64(32, BigInt(id), true);
  view.setInt32(40, rank, true);
  view.setInt32(44, ranks, true);
  return bytes;
}

export type Version = readonly [major: number, minor: number, patch: number];

/** @throws UnavailableError for a version whose structures nobody has looked at. */
export function requireKnownVersion([major, minor, patch]: Version): void {
  if (major === 3 && minor === 4) return;
  throw new UnavailableError(
    `This is NVSHMEM ${major}.${minor}.${patch}; Heddle knows the structures of 3.4 only`,
    'pip install nvidia-nvshmem-cu13==3.4.5, and put its lib folder on LD_LIBRARY_PATH',
  );
}
