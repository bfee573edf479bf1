/**
 * Operations of a warp: those lanes wait for each other that a mask names and that have not ended, wherever they are in the
 * kernel. Nothing else brings the lanes of a warp together.
 */
import { matrixWords, type Together } from '../../lang/index.js';

/** The meeting that one statement or instruction, or several that do the same, asks of lanes. */
export interface LaneMeeting extends Together {
  /** Lanes meet only for the same. */
  readonly key: string;
  /** All lanes of the warp must be there, those that have ended too. */
  readonly whole?: true;
}

export interface Open {
  readonly meeting: LaneMeeting;
  readonly warp: number;
  readonly mask: number;
  /** How many are yet to come. */
  missing: number;
}

/** In generated code, where a thread has word `i` for the lanes of its warp, and gets one from them. */
export const word = (i: number): string => `words[${matrixWords} * threadIdx + ${i}]`;

/** Generated code by which a thread brings such words. */
export const bringing = (texts: readonly string[]): string =>
  texts.map((text, i) => `${word(i)} = ${text};`).join(' ');

interface Lane {
  readonly index: number;
  readonly state: string;
  readonly meeting: Open | null;
}

export class LaneMeetings<Thread extends Lane> {
  /** By warp. */
  readonly #open: Open[][] = [];
  readonly #threads: readonly Thread[];

  /** `threads`: all of a block. */
  constructor(threads: readonly Thread[]) {
    this.#threads = threads;
  }

  /** The meeting to which a thread comes; nobody is missing any more if it completes that. */
  come(index: number, meeting: LaneMeeting, mask: number): Open {
    const warp = index >>> 5;
    this.#open[warp] ??= [];
    let open = this.#open[warp].find((one) => one.mask === mask && one.meeting.key === meeting.key);
    if (open === undefined) {
      open = { meeting, warp, mask, missing: 0 };
      const end = Math.min(this.#threads.length, 32 * warp + 32);
      for (let i = 32 * warp; i < end; i++)
        if (((mask >>> (i & 31)) & 1) === 1 && this.#threads[i]!.state !== 'ended') open.missing++;
      this.#open[warp].push(open);
    }
    return this.#oneLess(open);
  }

  #oneLess(open: Open): Open {
    if (--open.missing === 0) this.close(open);
    return open;
  }

  /** A thread has ended: the meetings that waited for it alone. */
  left(index: number): Open[] {
    const waited = (this.#open[index >>> 5] ?? []).filter(({ mask }) => ((mask >>> (index & 31)) & 1) === 1);
    return waited.filter((open) => this.#oneLess(open).missing === 0);
  }

  /** Meetings that will not take place: the lanes that they lack wait elsewhere, or have ended. */
  hopeless(): Open[] {
    return this.#open.flat().filter((open) => this.absent(open).every(({ state }) => hopeless.has(state)));
  }

  /** Nobody comes to it any more. */
  close(open: Open): void {
    const there = this.#open[open.warp]!;
    there.splice(there.indexOf(open), 1);
  }

  lanes(warp: number): readonly Thread[] {
    return this.#threads.slice(32 * warp, 32 * warp + 32);
  }

  /** The lanes that a meeting is for and that are not there. */
  absent(open: Open): readonly Thread[] {
    const { warp, mask, meeting } = open;
    return this.lanes(warp).filter(
      (thread) =>
        ((mask >>> (thread.index & 31)) & 1) === 1 &&
        thread.meeting !== open &&
        (meeting.whole || thread.state !== 'ended'),
    );
  }
}

const hopeless: ReadonlySet<string> = new Set(['lanes', 'barrier', 'ended']);
