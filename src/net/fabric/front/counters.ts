import { requireInteger } from '../../../base/errors.js';
import { type ImmediateTable, tableFull } from '../core/immediates.js';
import type { ArrivalOptions, Waiting } from './waiting.js';

/** Counts the operations that were posted with it, as they end. */
export class Counter {
  /** Operations posted with this counter. */
  posted = 0;
  /** Those that ended well. */
  completed = 0;
  /** Those that ended with an error. */
  failed = 0;
  /** The first error. */
  error: Error | null = null;
  readonly #waiting: Waiting;

  /** @internal */
  constructor(waiting: Waiting) {
    this.#waiting = waiting;
  }

  /** Whether the first `n` operations have ended, well or not; makes progress. */
  reached(n: number): boolean {
    requireCount(n);
    this.#waiting.poll();
    return this.completed + this.failed >= n;
  }

  /** Waits until `n` operations (all that were posted, by default) have ended; throws the first error. */
  async wait(n = this.posted): Promise<void> {
    requireCount(n);
    await this.#waiting.until(() => this.#lacking(n), Number.POSITIVE_INFINITY);
  }

  /** The same, blocking this thread. */
  waitSync(n = this.posted): void {
    requireCount(n);
    this.#waiting.untilSync(() => this.#lacking(n), Number.POSITIVE_INFINITY);
  }

  // Every operation ends within the engine's timeout, so these waits need none of their own.
  #lacking(n: number): number | Error {
    const left = n - this.completed - this.failed;
    return left > 0 ? left : (this.error ?? 0);
  }
}

/**
 * Counts the writes that landed here with one immediate. Waiting for `n` takes them off the count, so that the
 * next wait is for the next round. Writes may land before anybody waits, and in any order.
 */
export class ImmediateCounter {
  readonly #entry: number;
  /** Arrivals that waits have taken, modulo 2^32. */
  #taken = 0;
  readonly #table: ImmediateTable;
  /** Arrivals that make one write: one a rail when writes are cut up by bytes. */
  readonly #shards: number;
  readonly #waiting: Waiting;

  /** @internal */
  constructor(
    readonly tag: number,
    table: ImmediateTable,
    shards: number,
    waiting: Waiting,
  ) {
    this.#table = table;
    this.#shards = shards;
    this.#waiting = waiting;
    this.#entry = table.find(tag | 0);
    if (this.#entry < 0) throw tableFull();
  }

  /** Writes that landed and that nobody has taken yet; negative while waits are ahead of them. */
  get landed(): number {
    return Math.floor(((this.#table.count(this.#entry) - this.#taken) | 0) / this.#shards);
  }

  /** Takes `n` writes if they have landed; makes progress. The way to poll. */
  take(n: number): boolean {
    this.#require(n);
    if (this.landed < n) {
      this.#waiting.poll();
      if (this.landed < n) return false;
    }
    this.#taken = (this.#taken + n * this.#shards) | 0;
    return true;
  }

  /**
   * Waits until `n` writes have landed and takes them.
   * @throws PeerLostError when one of `options.from` was lost or stopped answering.
   * @throws WaitTimeoutError when they all answer and the writes still did not come.
   */
  async wait(n: number, options: ArrivalOptions = {}): Promise<void> {
    const want = this.#begin(n);
    try {
      await this.#waiting.until(
        () => this.#lacking(want),
        this.#waiting.timeout(options),
        this.#describe(n),
        options.from,
      );
    } catch (error) {
      this.#taken = (this.#taken - n * this.#shards) | 0;
      throw error;
    }
  }

  /** The same, blocking this thread. */
  waitSync(n: number, options: ArrivalOptions = {}): void {
    const want = this.#begin(n);
    try {
      this.#waiting.untilSync(
        () => this.#lacking(want),
        this.#waiting.timeout(options),
        this.#describe(n),
        options.from,
      );
    } catch (error) {
      this.#taken = (this.#taken - n * this.#shards) | 0;
      throw error;
    }
  }

  #begin(n: number): number {
    this.#require(n);
    this.#taken = (this.#taken + n * this.#shards) | 0;
    return this.#taken;
  }

  #require(n: number): void {
    requireInteger('n', n, 0, Math.floor(2 ** 30 / this.#shards));
  }

  #lacking(want: number): number {
    return Math.max(0, (want - this.#table.count(this.#entry)) | 0);
  }

  #describe(n: number): () => string {
    return () => `wait for ${n} writes with immediate ${this.tag} (${Math.max(0, this.landed + n)} landed)`;
  }
}

function requireCount(n: number): void {
  requireInteger('n', n, 0, 2 ** 31 - 1);
}
