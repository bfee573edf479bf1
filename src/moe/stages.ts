/**
 * Where a round stands. Each call takes it one stage further, and only in order; a handle belongs to one round, so that
 * a stale one is noticed.
 */
import { HeddleError } from '../errors/index.js';

/** A dispatch that was sent and not received: what `dispatchRecv` takes. */
export interface Dispatched {
  readonly phase: 'dispatched';
  /** Tokens that this rank sent. */
  readonly tokens: number;
}

/** A combine that was sent and not received: what `combineRecv` takes. */
export interface Combining {
  readonly phase: 'combining';
  readonly tokens: number;
}

/** What has been done last. */
type Stage = 'combined' | 'dispatch sent' | 'dispatched' | 'combine sent';

/** What may be called then. */
const next: Readonly<Record<Stage, string>> = {
  combined: 'dispatch or dispatchSend',
  'dispatch sent': 'dispatchRecv',
  dispatched: 'combine or combineSend',
  'combine sent': 'combineRecv',
};

export class Stages {
  #stage: Stage = 'combined';
  /** What the last send returned. */
  #handle: unknown = null;

  /** Requires that the round stands at `from`, and takes it on. */
  step(call: string, from: Stage, to: Stage): void {
    if (this.#stage !== from) {
      throw new HeddleError(
        from === 'combined' ? 'HEDDLE_ROUND_OPEN' : 'HEDDLE_NO_ROUND',
        `${call} was called out of order: the round is ${this.#stage}, so ${next[this.#stage]} comes next; ` +
          'a round is dispatch, experts, combine',
      );
    }
    this.#stage = to;
  }

  /** Likewise, with the handle of the send before it. */
  stepWith(call: string, handle: unknown, from: Stage, to: Stage): void {
    if (this.#stage === from && handle !== this.#handle) {
      throw new HeddleError(
        'HEDDLE_OTHER_ROUND',
        `${call} was given what belongs to another round, or to another ExpertParallel; give it what this round's send returned`,
      );
    }
    this.step(call, from, to);
  }

  hand<T>(handle: T): T {
    this.#handle = handle;
    return handle;
  }

  /** For benchmarks of one half: as if the round were over. */
  abandon(): void {
    this.#stage = 'combined';
  }
}
