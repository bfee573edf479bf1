/**
 * Ranges: the named calls that enqueue work on a stream, one inside another, the launches of kernels innermost. Profilers hear of
 * them by NVTX where `HEDDLE_NVTX` asks for it, and benchmarks that draw timelines.
 */
import { openLibrary } from '../base/native/index.js';
import type { Stream } from './device.js';

export interface RangeListener {
  enter(name: string, stream: Stream): void;
  leave(): void;
}

/** The listener of all ranges of this thread; undefined before the first. */
let listener: RangeListener | null | undefined;

/** Runs `enqueue` as a range. Without a listener this is only the call. */
export function inRange<T>(name: string, stream: Stream, enqueue: (stream: Stream) => T): T {
  if (listener === undefined) listener = openNvtx(process.env.HEDDLE_NVTX);
  if (listener === null) return enqueue(stream);
  listener.enter(name, stream);
  try {
    return enqueue(stream);
  } finally {
    listener.leave();
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

/** CUDA 12.9 and later bring the first, those before it the second. */
const sonames = ['libnvtx3interop.so.1', 'libnvToolsExt.so.1'];

/**
 * `asked`: 1, or the path of a library. It hands ranges on to the profiler that runs the process, and to nobody without one.
 * @throws UnavailableError where it is asked for and not there.
 */
export function openNvtx(asked = ''): RangeListener | null {
  if (asked === '' || asked === '0') return null;
  const toolkit = process.env.CUDA_HOME ?? process.env.CUDA_PATH ?? '/usr/local/cuda';
  const candidates = [...sonames, ...sonames.map((name) => `${toolkit}/lib64/${name}`)];
  const { nvtxRangePushA, nvtxRangePop } = openLibrary(
    asked === '1' ? candidates : [asked],
    'Put the folder of NVTX on LD_LIBRARY_PATH, set HEDDLE_NVTX to the path of the library, or unset it',
  ).functions({ nvtxRangePushA: ['i32', 'string'], nvtxRangePop: ['i32'] });
  return { enter: (name) => nvtxRangePushA(name), leave: () => nvtxRangePop() };
}
