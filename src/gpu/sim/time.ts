/** The time that kernels see: a nanosecond a step, and more when everybody sleeps; and who sleeps. */
import type { Thread } from './thread.js';

/** Nanoseconds after which sleepers wake though others run: those may be polling for what only a sleeper does. */
const longestSleep = 4096;

interface Sleeper {
  readonly thread: Thread;
  readonly since: number;
  readonly until: number;
}

export class Time {
  /** Nanoseconds. */
  now = 0;
  readonly #asleep: Sleeper[] = [];
  readonly #makeReady: (thread: Thread) => void;

  constructor(makeReady: (thread: Thread) => void) {
    this.#makeReady = makeReady;
  }

  sleep(thread: Thread, nanoseconds: number): void {
    this.#asleep.push({ thread, until: this.now + nanoseconds, since: this.now });
  }

  /** Nothing else can run: time passes until the first sleeper wakes. */
  wakeFirst(): boolean {
    if (this.#asleep.length === 0) return false;
    this.now = Math.max(this.now, Math.min(...this.#asleep.map((sleeper) => sleeper.until)));
    this.#wake(({ until }) => until <= this.now);
    return true;
  }

  /** Others run: whoever has slept long wakes. */
  wakeOverdue(): void {
    if (this.#asleep.length > 0) this.#wake(({ since }) => since + longestSleep <= this.now);
  }

  #wake(which: (sleeper: Sleeper) => boolean): void {
    for (let i = this.#asleep.length - 1; i >= 0; i--) {
      if (!which(this.#asleep[i]!)) continue;
      this.#makeReady(this.#asleep[i]!.thread);
      this.#asleep.splice(i, 1);
    }
  }

  /** Nobody wakes any more. */
  clear(): void {
    this.#asleep.length = 0;
  }

  /** The rank's threads never wake. */
  forget(rank: number): void {
    for (let i = this.#asleep.length - 1; i >= 0; i--) {
      if (this.#asleep[i]!.thread.rank === rank) this.#asleep.splice(i, 1);
    }
  }
}
