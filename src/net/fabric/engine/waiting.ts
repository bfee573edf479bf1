import { ArgumentError, requireInteger, requireObject } from '../../../base/errors.js';
import { monotonicClock } from '../core/clock.js';
import { PeerLostError, WaitTimeoutError } from '../libfabric/errors.js';
import type { Driver } from './driver.js';
import { Peer } from './handles.js';

/** How long to wait, and for whom. */
export interface ArrivalOptions {
  /** Milliseconds; the engine's timeout by default. */
  readonly timeoutMs?: number;
  /**
   * The peers that the awaited writes come from. Half-way to the timeout each is probed with a write of its own,
   * so that the error can name those that do not answer.
   */
  readonly from?: readonly Peer[];
}

/**
 * A condition: how many requests must still end, or writes and messages land, before it can hold. It holds when
 * that is 0, and never will when it is an error. A caller that sleeps is woken for no less than that.
 */
type Condition = () => number | Error;

/** The wait's goal, its name in errors, its limit, and its peers. */
export interface Wait {
  readonly condition: Condition;
  readonly timeoutMs: number;
  readonly what: () => string;
  readonly from: readonly Peer[];
}

/** A condition that also ends with time; `clock` asks it to look at the clock, which is not free. */
type Guarded = (clock: boolean) => number | Error;

interface Waiter {
  readonly condition: Guarded;
  resolve(): void;
  reject(error: Error): void;
}

/** The parts of the engine that waiting needs. */
export interface Waitable {
  readonly driver: Driver;
  /** Handles what the core reported; true when there was something. */
  poll(): boolean;
  /** Why the engine is of no use any more, if it is. */
  readonly broken: Error | null;
  readonly timeoutMs: number;
  /** Sends a peer an empty write; the function that it returns says whether that has landed. */
  probe(peer: Peer): () => boolean;
}

export type Waiting = ReturnType<typeof createWaiting>;

/** Waits for conditions that the core's progress makes true: asleep where there is a thread, by polling otherwise. */
export function createWaiting(engine: Waitable) {
  const waiters: Waiter[] = [];
  let pumping = false;
  function timeout(options: ArrivalOptions): number {
    requireObject('options', options);
    const { timeoutMs = engine.timeoutMs, from = [] } = options;
    if (!Array.isArray(from) || !from.every((peer) => peer instanceof Peer)) {
      throw new ArgumentError('from', from, 'an array of peers, from engine.addPeer()');
    }
    return requireInteger('timeoutMs', timeoutMs, 0, 2 ** 31 - 1);
  }

  /** Resolves once its condition holds. */
  function until(wait: Wait): Promise<void> {
    return new Promise((resolve, reject) => {
      waiters.push({ condition: guard(wait), resolve, reject });
      if (!pumping) {
        pumping = true;
        pump().catch((error) => rejectAll(error));
      }
    });
  }

  /** Returns once its condition holds. Nothing else runs in this thread meanwhile. */
  function untilSync(wait: Wait): void {
    const guarded = guard(wait);
    const { driver } = engine;
    for (let idle = 0, looks = 0, slept = true; ; looks++) {
      const heard = driver.heard();
      const moved = engine.poll();
      const missing = guarded(slept || (looks & 255) === 0);
      if (missing === 0) return;
      if (typeof missing !== 'number') throw missing;
      idle = moved ? 0 : idle + 1;
      slept = driver.pause(idle, heard, missing);
    }
  }

  function rejectAll(error: Error): void {
    for (const waiter of waiters.splice(0)) waiter.reject(error);
  }

  /** Adds to a condition what ends every wait: time, lost peers, a broken engine. */
  function guard({ condition, timeoutMs, what, from }: Wait): Guarded {
    const time = monotonicClock();
    time.read();
    const begun = time.ms;
    let probes: { peer: Peer; landed: () => boolean }[] | null = null;
    return (clock) => {
      const missing = condition();
      if (missing === 0 || typeof missing !== 'number' || !clock) return missing;
      if (engine.broken) return engine.broken;
      for (let i = 0; i < from.length; i++) {
        if (!from[i]!.lost) continue;
        const lost = from.filter((peer) => peer.lost).map((peer) => peer.name);
        return new PeerLostError(lost, what(), 'it was found lost meanwhile');
      }
      time.read();
      const waited = time.ms - begun;
      if (probes === null && from.length > 0 && waited > timeoutMs / 2) {
        probes = from.map((peer) => ({ peer, landed: engine.probe(peer) }));
      }
      if (waited < timeoutMs) return missing;
      const silent = (probes ?? []).filter(({ landed }) => !landed()).map(({ peer }) => peer.name);
      if (silent.length > 0) return new PeerLostError(silent, what(), `no answer within ${timeoutMs} ms`);
      return new WaitTimeoutError(`${what()}: not enough`, timeoutMs);
    };
  }

  async function pump(): Promise<void> {
    const { driver } = engine;
    try {
      for (let idle = 0; waiters.length > 0; ) {
        const heard = driver.heard();
        const moved = engine.poll();
        const missing = settle();
        if (missing === 0) continue;
        idle = moved ? 0 : idle + 1;
        await driver.rest(idle, heard, missing);
      }
    } finally {
      pumping = false;
    }
  }

  /** Ends the waits that can end. Returns 0 where there was one; otherwise the fewest events that any wait still lacks. */
  function settle(): number {
    let least = Number.POSITIVE_INFINITY;
    for (let i = 0; i < waiters.length; i++) {
      const waiter = waiters[i]!;
      const missing = waiter.condition(true);
      if (typeof missing === 'number' && missing > 0) {
        least = Math.min(least, missing);
        continue;
      }
      waiters.splice(i--, 1);
      least = 0;
      if (typeof missing === 'number') waiter.resolve();
      else waiter.reject(missing);
    }
    return least;
  }

  return { timeout, until, untilSync, rejectAll, poll: () => engine.poll() };
}
