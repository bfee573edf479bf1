/**
 * Loops that look at memory until it changes, written out in a kernel. Once nothing has changed for a while, the machine
 * remembers what each thread sees: when all that runs has seen it all before, nobody will ever end it.
 */
import { getOrMake } from '../../base/maps.js';
import type { StatementAccess } from './compiled.js';
import type { AccessReport } from './detector/detector.js';
import type { ByteAt, SimBuffer } from './memory.js';

interface Looker {
  readonly id: number;
  report(access: StatementAccess): AccessReport;
}

/** The access of a statement, where a thread makes it. */
export interface AccessAt extends ByteAt {
  readonly access: StatementAccess;
}

interface Look extends AccessAt {
  readonly value: number;
}

/** Steps in which nothing changes before looks are remembered. */
const suspicious = 2_000;
/** After so many steps in which nothing changes and nobody sees anything new, nothing can go on. Each thread adds `hopelessPerThread`. */
const hopeless = 100_000;
const hopelessPerThread = 300;
/** Steps in which nothing changes, after which hosts look again. */
const standing = 256;
/** Time limits that run out one after the other, while nothing changes. */
const mostLimits = 32;
/** So many times as long where nobody looks with an atomic: threads may be at work in their registers. */
const atWork = 4;

export class Spins {
  #still = 0;
  #stirred = false;
  #limits = 0;
  /** How often time limits have run out since something last changed: the longest do so with the second time. */
  timesOver = 0;
  readonly #seen = new Map<Looker, Map<number, number>>();
  readonly #last = new Map<Looker, Look>();
  /** One of them was atomic. */
  #looked = false;
  /** Where the running thread writes, and the words that were there before. */
  #written: SimBuffer | null = null;
  #writtenAt = 0;
  readonly #before: number[] = [];

  /** Memory changed, or a thread got on, or something else that may end somebody's loop. */
  stir(): void {
    this.#stirred = true;
  }

  /** After each step of the machine: true if all that runs spins for nothing. */
  step(running: { liveThreads(): number }): boolean {
    if (this.#written !== null) this.#compare(this.#written);
    if (!this.#stirred) {
      this.#still++;
      const steps = this.#looked ? this.#still : this.#still / atWork;
      return steps > hopeless && steps > hopeless + hopelessPerThread * running.liveThreads();
    }
    this.#stirred = false;
    this.#limits = 0;
    this.timesOver = 0;
    this.forget();
    return false;
  }

  /** Every so often while nothing changes. */
  get stands(): boolean {
    return this.#still % standing === standing - 1;
  }

  /** The limits of all waits have run out: true if they do so again and again, in a loop. */
  ranOut(): boolean {
    return ++this.#limits > mostLimits;
  }

  forget(): void {
    this.#still = 0;
    if (this.#last.size === 0) return;
    this.#seen.clear();
    this.#last.clear();
    this.#looked = false;
  }

  /** A thread writes there: at the end of its step it shows whether that changes anything. */
  writes(buffer: SimBuffer, offset: number, bytes: number): void {
    this.#written = buffer;
    this.#writtenAt = offset >>> 2;
    this.#before.length = 0;
    for (let at = offset >>> 2; at < (offset + bytes + 3) >>> 2; at++) this.#before.push(buffer.i32[at]!);
  }

  #compare({ i32 }: SimBuffer): void {
    this.#written = null;
    if (this.#before.some((word, i) => word !== i32[this.#writtenAt + i])) this.#stirred = true;
  }

  /** The thread has read weakly. */
  glance(thread: Looker, access: StatementAccess, buffer: SimBuffer, offset: number): void {
    if (this.#still < hopeless) return;
    this.#last.set(thread, { access, buffer, offset, value: buffer.i32[offset >>> 2]! });
  }

  look(thread: Looker, access: StatementAccess, buffer: SimBuffer, offset: number, value: number): void {
    if (this.#still < suspicious) return;
    const seen = getOrMake(this.#seen, thread, () => new Map());
    const place = buffer.id * 2 ** 31 + offset;
    if (seen.get(place) !== value) this.#still = suspicious;
    seen.set(place, value);
    this.#last.set(thread, { access, buffer, offset, value });
    this.#looked = true;
  }

  /** The threads that spin, and the words on which they do. */
  reports(): (AccessReport & { location: string; value: string; wanted: string })[] {
    const threads = [...this.#last].sort(([a], [b]) => a.id - b.id);
    return threads.map(([thread, { access, buffer, offset, value }]) => ({
      ...thread.report(access),
      location: `${buffer.purpose} of rank ${buffer.rank}, ${buffer.describe(offset)}`,
      value: String(value >>> 0),
      wanted: 'something else',
    }));
  }
}
