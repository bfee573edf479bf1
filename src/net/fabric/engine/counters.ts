import { requireInteger } from '../../../base/errors.js';
import { type ImmediateTable, tableFull } from '../core/immediates.js';
import type { Tally } from './operations.js';
import type { ArrivalOptions, Wait, Waiting } from './waiting.js';

/** Counts the operations that were posted with it, as they end. */
export class Counter implements Tally {
  posted = 0;
  completed = 0;
  failed = 0;
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
    await this.#waiting.until(this.#endOf(n));
  }

  /** Waits in the same way, but blocks this thread meanwhile. */
  waitSync(n = this.posted): void {
    this.#waiting.untilSync(this.#endOf(n));
  }

  // Every operation ends within the engine's timeout, so these waits need none of their own.
  #endOf(n: number): Wait {
    requireCount(n);
    const condition = (): number | Error => {
      const left = n - this.completed - this.failed;
      return left > 0 ? left : (this.error ?? 0);
    };
    return { condition, timeoutMs: Number.POSITIVE_INFINITY, what: () => 'wait', from: [] };
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
    const wait = this.#begin(n, options);
    try {
      await this.#waiting.until(wait);
    } catch (error) {
      this.#taken = (this.#taken - n * this.#shards) | 0;
      throw error;
    }
  }

  /** Waits in the same way, but blocks this thread meanwhile. */
  waitSync(n: number, options: ArrivalOptions = {}): void {
    const wait = this.#begin(n, options);
    try {
      this.#waiting.untilSync(wait);
    } catch (error) {
      this.#taken = (this.#taken - n * this.#shards) | 0;
      throw error;
    }
  }

  #begin(n: number, options: ArrivalOptions): Wait {
    this.#require(n);
    const timeoutMs = this.#waiting.timeout(options);
    this.#taken = (this.#taken + n * this.#shards) | 0;
    const want = this.#taken;
    return {
      condition: () => Math.max(0, (want - this.#table.count(this.#entry)) | 0),
      timeoutMs,
      what: () => `wait for ${n} writes with immediate ${this.tag} (${Math.max(0, this.landed + n)} landed)`,
      from: options.from ?? [],
    };
  }

  #require(n: number): void {
    requireInteger('n', n, 0, Math.floor(2 ** 30 / this.#shards));
  }
}

function requireCount(n: number): void {
  requireInteger('n', n, 0, 2 ** 31 - 1);
}
