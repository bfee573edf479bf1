import { allocate, type NativeMemory, openLibrary } from '../../../base/native/index.js';

/** CLOCK_MONOTONIC of Linux. */
const monotonic = 1;

/**
 * Milliseconds of the monotonic clock, for code that polls. `performance.now()` returns a number that V8 puts on
 * the heap; polling for minutes would make garbage of nothing but time.
 */
export class Clock {
  /** The value that the last `read` found. */
  ms = 0.5;
  readonly #memory: NativeMemory = allocate(16, 16);
  /** A struct timespec: seconds and nanoseconds, 64 bits each, of which the lower halves say enough. */
  readonly #words = new Uint32Array(this.#memory.buffer);
  readonly #getTime: (clock: number, into: number) => number;
  // Through a variable the address is boxed once, not at each call.
  readonly #into: number;

  constructor() {
    this.#into = this.#memory.address;
    ({ clock_gettime: this.#getTime } = openLibrary(null, '').functions({
      clock_gettime: ['i32', 'i32', 'address'],
    }));
  }

  read(): void {
    this.#getTime(monotonic, this.#into);
    this.ms = this.#words[0]! * 1000 + this.#words[2]! / 1e6;
  }
}

let shared: Clock | undefined;

/** This thread's clock; made at the first use, because importing this module must not need a C library. */
export function monotonicClock(): Clock {
  shared ??= new Clock();
  return shared;
}

/**
 * Milliseconds that a thread has been polling. A long pause of its own (a stopped process, a caller that was busy
 * elsewhere) counts only in part: it says nothing about the peers. Its fields hold fractions from the start, so that
 * V8 changes them in place.
 */
export class PollingClock {
  ms = 0.5;
  /** The time at which a request that is taken now becomes overdue, in whole milliseconds, modulo 2^32. */
  deadline: number;
  readonly #time = monotonicClock();
  readonly #longestPauseMs: number;
  #last = 0.5;
  #nextScan = 0.5;
  readonly #timeoutMs: number;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
    this.deadline = timeoutMs;
    this.#longestPauseMs = Math.min(1000, timeoutMs / 4);
    this.#time.read();
    this.#last = this.#time.ms;
  }

  /** Goes on; true when it is time to look for what is overdue. */
  tick(): boolean {
    this.#time.read();
    this.ms += Math.min(this.#time.ms - this.#last, this.#longestPauseMs);
    this.#last = this.#time.ms;
    this.deadline = (this.ms + this.#timeoutMs) | 0;
    if (this.ms < this.#nextScan) return false;
    this.#nextScan = this.ms + Math.max(5, Math.min(100, this.#timeoutMs / 16));
    return true;
  }
}
