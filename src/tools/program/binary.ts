/** The PTX in the fat binaries that nvcc puts into programs. */
import * as zlib from 'node:zlib';
import { UnavailableError } from '../../base/errors.js';

/** The part of an entry's header that matters: what it is, its length, and for which GPUs. */
const entryOf = (fat: Buffer, at: number) => ({
  isPtx: fat.readUInt16LE(at) === 1,
  from: at + fat.readUInt32LE(at + 4),
  bytes: Number(fat.readBigUInt64LE(at + 8)),
  /** 0 where the entry is not compressed. */
  compressed: fat.readUInt32LE(at + 16),
  capability: fat.readUInt32LE(at + 28),
});

const zstd: ((bytes: Uint8Array) => Buffer) | undefined = Reflect.get(zlib, 'zstdDecompressSync');
const remedy = 'Build the program with nvcc --compress-mode=none';

/** The PTX for the newest GPUs in a fat binary; null where none is in it. */
export function ptxIn(fat: Buffer): string | null {
  const end = Math.min(fat.length, fat.readUInt16LE(6) + Number(fat.readBigUInt64LE(8)));
  let newest: ReturnType<typeof entryOf> | null = null;
  for (let at = fat.readUInt16LE(6); at + 64 <= end; ) {
    const entry = entryOf(fat, at);
    if (entry.isPtx && entry.capability >= (newest?.capability ?? 0)) newest = entry;
    at = entry.from + entry.bytes;
  }
  if (newest === null) return null;
  const { from, bytes, compressed } = newest;
  return textOf(fat.subarray(from, from + (compressed || bytes))).replace(/\0+$/, '');
}

function textOf(payload: Buffer): string {
  if (/^\s*(\/\/|\.version)/.test(payload.toString('latin1', 0, 64))) return payload.toString('utf8');
  if (payload.readUInt32LE(0) !== 0xfd2fb528)
    throw new UnavailableError('The program’s PTX is compressed in a way that is not known', remedy);
  if (zstd === undefined)
    throw new UnavailableError(
      'The program’s PTX is compressed by zstd, which this Node.js lacks',
      `${remedy}, or use Node.js 22.15`,
    );
  return zstd(payload).toString('utf8');
}
