import { allocate, type NativeMemory, openLibrary } from '../native/index.js';

/** CLOCK_MONOTONIC of Linux. */
const monotonic = 1;

/**
 * Milliseconds of the monotonic clock, for code that polls. `performance.now()` returns a number that V8 puts on
 * the heap; polling for minutes would make garbage of nothing but time.
 */
export class Clock {
  /** What the last `read` found. */
  ms = 0.5;
  private readonly memory: NativeMemory = allocate(16, 16);
  /** A struct timespec: seconds and nanoseconds, 64 bits each, of which the lower halves say enough. */
  private readonly words = new Uint32Array(this.memory.buffer);
  private readonly getTime: (clock: number, into: number) => number;
  // Through a variable the address is boxed once, not at each call.
  private readonly into: number;

  constructor() {
    this.into = this.memory.address;
    this.getTime = openLibrary(null, '').declare('clock_gettime', 'i32', ['i32', 'address']);
  }

  read(): void {
    this.getTime(monotonic, this.into);
    this.ms = this.words[0]! * 1000 + this.words[2]! / 1e6;
  }
}

let shared: Clock | undefined;

/** This thread's clock; made at the first use, because importing this module must not need a C library. */
export function monotonicClock(): Clock {
  shared ??= new Clock();
  return shared;
}
