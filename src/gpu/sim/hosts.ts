/**
 * The host programs of a machine's ranks, as far as the machine must know them: to say 'nobody will ever end this
 * wait' it has to be sure that no host program is about to enqueue something.
 *
 * A host is blocked while it awaits a stream of its device, or something that another rank's host must do (tell the
 * machine with `waiting`). Ranks that announced their program with `entered` count until they leave; where nobody
 * announced any, one program is the host of all ranks, and blocked when it awaits a stream.
 */
import type { HeddleError } from '../../base/errors.js';

interface Pending {
  readonly rank: number;
  readonly reject: (error: unknown) => void;
}

export class Hosts {
  readonly #programs: number[];
  readonly #waits: number[];
  #announced = false;
  readonly #pending = new Set<Pending>();

  /** Whether a host may still act of which nothing is known here. */
  mayAct: () => boolean = () => false;
  readonly #onTold: () => void;

  constructor(ranks: number, onTold: () => void) {
    this.#onTold = onTold;
    this.#programs = new Array(ranks).fill(0);
    this.#waits = new Array(ranks).fill(0);
  }

  entered(rank: number): void {
    this.#announced = true;
    this.#programs[rank]!++;
  }

  left(rank: number): void {
    this.#programs[rank]!--;
  }

  /** The rank whose host program is that of `rank`: the first's, where one program is the host of all. */
  programOf(rank: number): number {
    return this.#announced ? rank : 0;
  }

  /** The host of `rank` waits for another rank's host, until the returned function is called. */
  waiting(rank: number): () => void {
    this.#waits[rank]!++;
    let ended = false;
    return () => {
      if (!ended) this.#waits[rank]!--;
      ended = true;
    };
  }

  /** A promise for something that the machine will do. */
  promise<T>(rank: number, start: (resolve: (value: T) => void, reject: (error: unknown) => void) => void) {
    return new Promise<T>((resolve, reject) => {
      const once =
        <T>(settle: (value: T) => void) =>
        (value: T): void => {
          if (!this.#pending.delete(entry)) return;
          this.#waits[rank]!--;
          this.#onTold();
          settle(value);
        };
      const entry: Pending = { rank, reject: once(reject) };
      this.#pending.add(entry);
      this.#waits[rank]!++;
      try {
        start(once(resolve), entry.reject);
      } catch (error) {
        entry.reject(error);
      }
    });
  }

  get anyPending(): boolean {
    return this.#pending.size > 0;
  }

  /** Whether no host program can do anything before the machine does. */
  allBlocked(killed: readonly boolean[]): boolean {
    let programs = 0;
    for (let rank = 0; rank < this.#programs.length; rank++) {
      if (this.#programs[rank] === 0 || killed[rank]) continue;
      programs++;
      if (this.#waits[rank] === 0) return false;
    }
    return (programs > 0 || this.anyPending) && !this.mayAct();
  }

  /** Ends what hosts await: of one rank, or of all. */
  fail(error: HeddleError, rank?: number): void {
    for (const entry of [...this.#pending]) {
      if (rank === undefined || entry.rank === rank) entry.reject(error);
    }
  }
}
