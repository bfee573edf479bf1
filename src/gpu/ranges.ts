/**
 * Ranges: the named calls that enqueue work on a stream, one inside another, the launches of kernels innermost. Profilers hear of
 * them by NVTX where `HEDDLE_NVTX` asks for it, and benchmarks that draw timelines.
 */
import type { Stream } from './device.js';

export interface RangeListener {
  enter(name: string, stream: Stream): void;
  leave(): void;
}

/** The listener of all ranges of this thread; undefined before the first. */
let listener: RangeListener | null | undefined;
let find = (): RangeListener | null => null;

/** `found` is asked for the listener when the first range begins. A browser has none. */
export function findListener(found: () => RangeListener | null): void {
  find = found;
}

/** Begins a range; the listener that must hear of its end, null where nobody listens. */
export function openRange(name: string, stream: Stream): RangeListener | null {
  if (listener === undefined) listener = find();
  listener?.enter(name, stream);
  return listener;
}

/** Runs `enqueue` as a range. Without a listener this is only the call. */
export function inRange<T>(name: string, stream: Stream, enqueue: (stream: Stream) => T): T {
  const heard = openRange(name, stream);
  try {
    return enqueue(stream);
  } finally {
    heard?.leave();
  }
}

/** `other` hears of the ranges of what `enqueue` calls, in place of NVTX. */
export function listenToRanges(other: RangeListener, enqueue: () => void): void {
  const before = listener;
  listener = other;
  try {
    enqueue();
  } finally {
    listener = before;
  }
}
