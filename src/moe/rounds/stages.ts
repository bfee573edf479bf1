/**
 * Where a round stands. Each call takes it one stage further, and only in order; a handle belongs to one round, so that
 * a stale one is noticed.
 */
import { HeddleError } from '../../base/errors.js';

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
export type Stage = 'combined' | 'dispatch sent' | 'dispatched' | 'combine sent';

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

  at(stage: Stage): boolean {
    return this.#stage === stage;
  }

  /** Whether this round's last call returned it. */
  gave(handle: unknown): boolean {
    return handle === this.#handle;
  }

  /** Requires that the round stands at `from`. */
  require(call: string, from: Stage): void {
    if (this.#stage === from) return;
    const where = this.#stage === 'combined' ? 'no round is under way' : `the round is ${this.#stage}`;
    throw new HeddleError(
      from === 'combined' ? 'HEDDLE_ROUND_OPEN' : 'HEDDLE_NO_ROUND',
      `${call} was called out of order: ${where}, so ${next[this.#stage]} comes next; ` +
        'a round is dispatch, experts, combine',
    );
  }

  /** Likewise, and the handle of the send before. */
  requireWith(call: string, handle: unknown, from: Stage): void {
    this.require(call, from);
    if (this.gave(handle)) return;
    throw new HeddleError(
      'HEDDLE_OTHER_ROUND',
      `${call} was given what belongs to another round, or to another ExpertParallel; give it what this round's send returned`,
    );
  }

  /** Takes the round on. A call that was refused leaves it where it was. */
  reach(stage: Stage): void {
    this.#stage = stage;
  }

  hand<T>(handle: T): T {
    this.#handle = handle;
    return handle;
  }
}
