import { ArgumentError, requireInteger, requireObject } from '../../../base/errors.js';
import { Counter } from './counters.js';
import type { PeerGroup, Region, RemoteRegion } from './handles.js';

/** The options that every operation may have. Reuse the object: posting then allocates nothing. */
export interface OperationOptions {
  /** 32 bits that the receiver counts as writes land. */
  immediate?: number | undefined;
  /** Counts the operation when it has ended. A failure that no counter hears is a process warning. */
  counter?: Counter | undefined;
}

/** `bytes` from `source` at `sourceOffset` to `target` at `targetOffset`. */
export interface Write extends OperationOptions {
  source: Region;
  sourceOffset: number;
  target: RemoteRegion;
  targetOffset: number;
  bytes: number;
}

/** Many pages of `bytes` each to one peer. Each page carries the immediate and counts as one write. */
export interface Paged extends OperationOptions {
  source: Region;
  sourceOffsets: ArrayLike<number>;
  target: RemoteRegion;
  targetOffsets: ArrayLike<number>;
  bytes: number;
}

/** One slice of `source` to each member of a group: entry i of the arrays is about member i. */
export interface Scatter extends OperationOptions {
  source: Region;
  sourceOffsets: ArrayLike<number>;
  group: PeerGroup;
  targetOffsets: ArrayLike<number>;
  bytes: ArrayLike<number>;
}

/** An immediate to every member of a group. */
export interface Barrier extends OperationOptions {
  group: PeerGroup;
  immediate: number;
}

/** Refuses a slice that is not within `room` bytes. */
export function requireSlice(argument: string, offset: number, bytes: number, room: number): void {
  // The one comparison that the hot path makes; only a refusal looks closer.
  if (
    Number.isInteger(offset) &&
    Number.isInteger(bytes) &&
    offset >= 0 &&
    bytes >= 0 &&
    offset + bytes <= room
  )
    return;
  requireInteger('bytes', bytes, 0, room);
  requireInteger(argument, offset, 0, room - bytes);
}

/** Requires an object of options, and that its `counter`, where it has one, is an engine's: it tells how the operation ended. */
export function requireOperation(argument: string, operation: OperationOptions): void {
  requireObject(argument, operation);
  const { counter } = operation;
  if (counter !== undefined && !(counter instanceof Counter)) {
    throw new ArgumentError(`${argument}.counter`, counter, 'a counter, from engine.counter()');
  }
}

export function requireImmediate(immediate: number | undefined): void {
  if (immediate === undefined || immediate >>> 0 === immediate) return;
  throw new ArgumentError('immediate', immediate, 'an integer from 0 to 4294967295');
}
