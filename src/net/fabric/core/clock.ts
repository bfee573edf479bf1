import { allocate, openLibrary } from '../../../base/native/index.js';

/** CLOCK_MONOTONIC of Linux. */
const monotonic = 1;

/**
 * Milliseconds of the monotonic clock, for code that polls. `performance.now()` returns a number that V8 puts on
 * the heap; polling for minutes would make garbage of nothing but time.
 */
function createClock() {
  const memory = allocate(16, 16);
  // A struct timespec: seconds and nanoseconds, 64 bits each, of which the lower halves say enough.
  const words = new Uint32Array(memory.buffer);
  const { clock_gettime } = openLibrary(null, '').functions({ clock_gettime: ['i32', 'i32', 'address'] });
  // Through a variable the address is boxed once, not at each call.
  const into = memory.address;
  return {
    /** The value that the last `read` found. */
    ms: 0.5,
    read(): void {
      clock_gettime(monotonic, into);
      this.ms = words[0]! * 1000 + words[2]! / 1e6;
    },
  };
}

let shared: ReturnType<typeof createClock> | undefined;

/** This thread's clock; made at the first use, because importing this module must not need a C library. */
export function monotonicClock() {
  shared ??= createClock();
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
