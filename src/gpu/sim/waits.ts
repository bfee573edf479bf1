/** Threads that are not run: they wait for a place in memory until it may have changed, or sleep. And the time that passes meanwhile. */
import { getOrMake } from '../../base/maps.js';
import type { MachineServices } from './blocks.js';
import { describeCondition } from './compiled.js';
import type { SimBuffer } from './memory.js';
import type { Thread, Wait } from './thread.js';

/** Longer than hosts let kernels wait: a wait with a higher limit relies on somebody else to give up. */
export const longestMs = 4_000_000;

/** Nanoseconds after which sleepers wake though others run: those may be polling for what only a sleeper does. */
const longestSleep = 4096;

interface Sleeper {
  readonly thread: Thread;
  readonly since: number;
  readonly until: number;
}

export class Waits {
  /** The time that kernels see: a nanosecond a step, and more when everybody sleeps. */
  now = 0;
  #asleep: Sleeper[] = [];
  readonly #machine: MachineServices;
  readonly #parked = new Set<Thread>();
  /** Checked mode: parked threads by the 16-byte line they wait for, a buffer. */
  readonly #parkedAt = new Map<SimBuffer, Map<number, Thread[]>>();

  constructor(machine: MachineServices) {
    this.#machine = machine;
  }

  get any(): boolean {
    return this.#parked.size > 0;
  }

  park(thread: Thread): void {
    thread.state = 'parked';
    this.#parked.add(thread);
    if (this.#machine.mode === 'fast') return;
    const { buffer, offset } = thread.wait!;
    const lines = getOrMake(this.#parkedAt, buffer, () => new Map());
    getOrMake(lines, offset >>> 4, () => []).push(thread);
    buffer.waiters++;
  }

  wake(buffer: SimBuffer, offset: number, bytes: number): void {
    const lines = this.#parkedAt.get(buffer);
    if (lines === undefined) return;
    const last = (offset + bytes - 1) >>> 4;
    for (let at = offset >>> 4; at <= last; at++) {
      const line = lines.get(at);
      if (line === undefined) continue;
      lines.delete(at);
      if (lines.size === 0) this.#parkedAt.delete(buffer);
      buffer.waiters -= line.length;
      for (const thread of line) {
        if (this.#parked.delete(thread)) this.#machine.makeReady(thread);
      }
    }
  }

  /** Fast mode looks at parked threads only when nothing else can run, so that stores cost nothing. */
  pollAll(): boolean {
    let woken = false;
    for (const thread of this.#parked) {
      if (!thread.poll()) continue;
      this.#parked.delete(thread);
      this.#machine.makeReady(thread);
      woken = true;
    }
    return woken;
  }

  /** Describes the threads that wait, and for what. */
  reports() {
    return [...this.#parked].map(describe);
  }

  /** All waits end as if their limits had run out; those that have the longest there is only once no other is left. */
  expire(): void {
    if (!this.expireWithin(1000 * longestMs)) this.expireWithin(2 ** 32);
  }

  /** Ends waits whose limits are no longer than so many microseconds. True when there was one. */
  expireWithin(microseconds: number): boolean {
    return this.#endWhere(({ limit }) => limit >>> 0 <= microseconds);
  }

  /** So many microseconds have passed in which only somebody outside could end a wait. True when a limit was over by that. */
  pass(microseconds: number): boolean {
    return this.#endWhere((wait) => {
      wait.waited += microseconds;
      return wait.waited >= wait.limit >>> 0;
    });
  }

  #endWhere(isOver: (wait: Wait) => boolean): boolean {
    let ended = false;
    for (const thread of this.#parked) {
      const wait = thread.wait!;
      if (!isOver(wait)) continue;
      this.#parked.delete(thread);
      wait.expired = true;
      this.#machine.makeReady(thread);
      ended = true;
    }
    return ended;
  }

  sleep(thread: Thread, nanoseconds: number): void {
    this.#asleep.push({ thread, until: this.now + nanoseconds, since: this.now });
  }

  /** Nothing else can run: time passes until the first sleeper wakes. */
  wakeFirst(): boolean {
    if (this.#asleep.length === 0) return false;
    // There may be more of them than a call takes arguments.
    const first = this.#asleep.reduce((least, { until }) => Math.min(least, until), Number.POSITIVE_INFINITY);
    this.now = Math.max(this.now, first);
    this.#awake(({ until }) => until <= this.now);
    return true;
  }

  wakeOverdue(): void {
    if (this.#asleep.length > 0) this.#awake(({ since }) => since + longestSleep <= this.now);
  }

  #awake(which: (sleeper: Sleeper) => boolean): void {
    for (let i = this.#asleep.length - 1; i >= 0; i--) {
      if (!which(this.#asleep[i]!)) continue;
      this.#machine.makeReady(this.#asleep[i]!.thread);
      this.#asleep.splice(i, 1);
    }
  }

  clear(): void {
    this.#parked.clear();
    this.#parkedAt.clear();
    this.#asleep = [];
  }

  /** The rank's threads wait no more, nor do they go on. */
  forget(rank: number): void {
    for (const thread of this.#parked) if (thread.rank === rank) this.#parked.delete(thread);
    this.#asleep = this.#asleep.filter(({ thread }) => thread.rank !== rank);
  }
}

function describe(thread: Thread) {
  const wait = thread.wait!;
  const { buffer, offset, kind, wanted } = wait;
  const word = buffer.i32[(offset >>> 2) + (kind === 'filled' ? 3 : 0)]! >>> 0;
  return {
    ...thread.report({ ...wait.access, kind: 'wait' }),
    location: `${buffer.purpose} of rank ${buffer.rank}, ${buffer.describe(offset)}`,
    value: kind === 'phase' ? `in a phase that ${wait.mbarrier!.lacking}` : String(word),
    wanted: kind === 'phase' ? `the end of the phase of parity ${wanted}` : describeCondition(wait),
  };
}
