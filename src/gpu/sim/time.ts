/** The time that kernels see: a nanosecond a step, and more when everybody sleeps; and who sleeps. */
import type { Thread } from './thread.js';

export class Time {
  /** Nanoseconds. */
  now = 0;
  readonly #asleep: { readonly thread: Thread; readonly until: number }[] = [];
  readonly #makeReady: (thread: Thread) => void;

  constructor(makeReady: (thread: Thread) => void) {
    this.#makeReady = makeReady;
  }

  sleep(thread: Thread, nanoseconds: number): void {
    this.#asleep.push({ thread, until: this.now + nanoseconds });
  }

  /** Nothing else can run: time passes until the first sleeper wakes. */
  wakeFirst(): boolean {
    if (this.#asleep.length === 0) return false;
    this.now = Math.max(this.now, Math.min(...this.#asleep.map((sleeper) => sleeper.until)));
    for (let i = this.#asleep.length - 1; i >= 0; i--) {
      if (this.#asleep[i]!.until > this.now) continue;
      this.#makeReady(this.#asleep[i]!.thread);
      this.#asleep.splice(i, 1);
    }
    return true;
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
