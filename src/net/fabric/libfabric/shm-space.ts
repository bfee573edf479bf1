/** The shm provider keeps each endpoint's mailbox in a file of /dev/shm, which containers make small. */
import { statfsSync } from 'node:fs';
import { requireInteger, requireObject, UnavailableError, valueOr } from '../../../base/errors.js';

const mebibyte = 2 ** 20;
/** The fields of its file that an endpoint touches. */
const endpointBytes = 4 * mebibyte;
/** libfabric offers shm only where so much is free. */
const reserve = 32 * mebibyte;

/** The room in /dev/shm; null where there is none. */
export const shmSpace = () =>
  valueOr(null, () => {
    const { bsize, blocks, bavail } = statfsSync('/dev/shm');
    return { total: bsize * blocks, free: bsize * bavail };
  });

/** The room that so many endpoints need: one an engine, and one for each peer of it. */
export const shmBytesFor = (endpoints: number): number =>
  reserve + requireInteger('endpoints', endpoints, 1, 2 ** 20) * endpointBytes;

/** The problem where /dev/shm has less than that; null where it has enough. */
export function shmShortage(endpoints: number, space = shmSpace()): string | null {
  const needed = shmBytesFor(endpoints);
  if (space === null) return `there is no /dev/shm, of which shm needs ${inMebibytes(needed)}`;
  requireObject('space', space);
  requireInteger('space.free', space.free, 0, Number.MAX_SAFE_INTEGER);
  requireInteger('space.total', space.total, 0, Number.MAX_SAFE_INTEGER);
  if (space.free >= needed) return null;
  const { free, total } = space;
  return `/dev/shm has ${inMebibytes(free)} free of ${inMebibytes(total)}, and shm needs ${inMebibytes(needed)}`;
}

/** How to get so much. */
export function shmRemedy(endpoints: number): string {
  const size = `${Math.ceil(shmBytesFor(endpoints) / 2 ** 30)}g`;
  return `Give the container more: docker run --shm-size=${size} (Kubernetes: an emptyDir with medium Memory at /dev/shm); or, as root, mount -o remount,size=${size} /dev/shm`;
}

/** Refuses what would run out of /dev/shm in its middle. */
export function requireShmSpace(what: string, endpoints: number, space = shmSpace()): void {
  const shortage = shmShortage(endpoints, space);
  if (shortage !== null) throw new UnavailableError(`${what}: ${shortage}`, shmRemedy(endpoints));
}

const inMebibytes = (bytes: number): string => `${Math.floor(bytes / mebibyte)} MiB`;
