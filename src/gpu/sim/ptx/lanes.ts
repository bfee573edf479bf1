/**
 * Operations of a warp with a mask: those lanes wait for each other that it names and that have not ended, wherever they are
 * in the kernel. Nothing else brings the lanes of a warp together.
 */

/** The meeting that one instruction, or several that do the same, asks of lanes. */
export interface LaneMeeting {
  /** Lanes meet only for the same. */
  readonly key: string;
  /** Whether memory is ordered by it. */
  readonly orders: boolean;
  /** Whether they have brought factors of a product of tiles. */
  readonly multiplies?: true;
  /** Replaces what the lanes of the mask brought by what they get: `matrixWords` words each, from `first` on. */
  complete?(words: Int32Array, first: number, mask: number): void;
}

interface Lane {
  readonly index: number;
  readonly state: string;
}

export interface Open<Thread> {
  readonly meeting: LaneMeeting;
  readonly warp: number;
  readonly mask: number;
  readonly there: Thread[];
}

export class LaneMeetings<Thread extends Lane> {
  readonly #open: Open<Thread>[] = [];

  /** The meeting that `thread` completes by coming to it. */
  come(thread: Thread, meeting: LaneMeeting, mask: number, threads: readonly Thread[]): Open<Thread> | null {
    const warp = thread.index >>> 5;
    let open = this.#open.find(
      (one) => one.warp === warp && one.mask === mask && one.meeting.key === meeting.key,
    );
    if (open === undefined) {
      open = { meeting, warp, mask, there: [] };
      this.#open.push(open);
    }
    open.there.push(thread);
    return this.#isComplete(open, threads) ? this.#close(open) : null;
  }

  /** A thread of the warp has ended: meetings that waited for it alone. */
  left(warp: number, threads: readonly Thread[]): Open<Thread>[] {
    return this.#open
      .filter((open) => open.warp === warp && this.#isComplete(open, threads))
      .map((open) => this.#close(open));
  }

  /** Those to which somebody never comes: who is there may go on. */
  abandoned(): Open<Thread>[] {
    return this.#open.splice(0);
  }

  /** The lanes that a meeting is for and that do not come. */
  absent({ warp, mask, there }: Open<Thread>, threads: readonly Thread[]): Thread[] {
    return threads.filter(
      (thread) =>
        thread.index >>> 5 === warp &&
        ((mask >>> (thread.index & 31)) & 1) === 1 &&
        thread.state !== 'ended' &&
        !there.includes(thread),
    );
  }

  #isComplete(open: Open<Thread>, threads: readonly Thread[]): boolean {
    const { warp, mask, there } = open;
    const end = Math.min(threads.length, 32 * warp + 32);
    let wanted = 0;
    for (let i = 32 * warp; i < end; i++)
      if (((mask >>> (i & 31)) & 1) === 1 && threads[i]!.state !== 'ended') wanted++;
    return there.length >= wanted;
  }

  #close(open: Open<Thread>): Open<Thread> {
    this.#open.splice(this.#open.indexOf(open), 1);
    return open;
  }
}
