import { setImmediate } from 'node:timers/promises';
import { monotonicClock } from './clock.js';
import type { Driver } from './driver.js';
import { PeerLostError, WaitTimeoutError } from './errors.js';
import type { Peer } from './handles.js';
import { word } from './shared.js';

/** How long to wait, and for whom. */
export interface WaitOptions {
  /** Milliseconds; the engine's timeout by default. */
  readonly timeoutMs?: number;
  /**
   * The peers that the awaited writes come from. Half-way to the timeout each is probed with a write of its own,
   * so that the error can name those that do not answer.
   */
  readonly from?: readonly Peer[];
}

/** A condition: true when it holds, an error when it never will. */
type Condition = () => boolean | Error;

/** A condition that also ends with time; `clock` asks it to look at the clock, which is not free. */
type Guarded = (clock: boolean) => boolean | Error;

interface Waiter {
  readonly condition: Guarded;
  resolve(): void;
  reject(error: Error): void;
}

/** What waiting needs of the engine. */
export interface Waitable {
  readonly driver: Driver;
  readonly control: Int32Array;
  readonly timeoutMs: number;
  /** Handles what the core reported; true when there was something. */
  poll(): boolean;
  /** Writes nothing in particular to a peer; the answer says whether it has landed yet. */
  probe(peer: Peer): () => boolean;
  /** Why the engine is of no use any more, if it is. */
  readonly broken: Error | null;
}

/** Waits for conditions that the core's progress makes true: asleep where there is a thread, by polling otherwise. */
export class Waiting {
  private readonly waiters: Waiter[] = [];
  private pumping = false;

  constructor(private readonly engine: Waitable) {}

  poll(): boolean {
    return this.engine.poll();
  }

  timeout(options: WaitOptions): number {
    return options.timeoutMs ?? this.engine.timeoutMs;
  }

  /** Resolves once `condition` holds. */
  until(condition: Condition, timeoutMs: number, what?: () => string, from?: readonly Peer[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.waiters.push({ condition: this.guard(condition, timeoutMs, what, from), resolve, reject });
      if (!this.pumping) {
        this.pumping = true;
        this.pump().catch((error) => this.rejectAll(error));
      }
    });
  }

  /** Returns once `condition` holds. Nothing else runs in this thread meanwhile, except callbacks of operations. */
  untilSync(condition: Condition, timeoutMs: number, what?: () => string, from?: readonly Peer[]): void {
    const guarded = this.guard(condition, timeoutMs, what, from);
    for (let idle = 0, looks = 0; ; looks++) {
      const moved = this.engine.poll();
      const state = guarded((looks & 255) === 0);
      if (state === true) return;
      if (state !== false) throw state;
      idle = moved ? 0 : idle + 1;
      this.engine.driver.pause(idle);
    }
  }

  rejectAll(error: Error): void {
    for (const waiter of this.waiters.splice(0)) waiter.reject(error);
  }

  /** Adds to a condition what ends every wait: time, lost peers, a broken engine. */
  private guard(
    condition: Condition,
    timeoutMs: number,
    what: () => string = () => 'wait',
    from: readonly Peer[] = [],
  ): Guarded {
    const time = monotonicClock();
    time.read();
    const begun = time.ms;
    let probes: { peer: Peer; landed: () => boolean }[] | null = null;
    return (clock) => {
      const state = condition();
      if (state !== false || !clock) return state;
      if (this.engine.broken) return this.engine.broken;
      for (let i = 0; i < from.length; i++) {
        if (!from[i]!.lost) continue;
        const lost = from.filter((peer) => peer.lost).map((peer) => peer.name);
        return new PeerLostError(lost, what(), 'it was found lost meanwhile');
      }
      time.read();
      const waited = time.ms - begun;
      if (probes === null && from.length > 0 && waited > timeoutMs / 2) {
        probes = from.map((peer) => ({ peer, landed: this.engine.probe(peer) }));
      }
      if (waited < timeoutMs) return false;
      const silent = (probes ?? []).filter(({ landed }) => !landed()).map(({ peer }) => peer.name);
      if (silent.length > 0) return new PeerLostError(silent, what(), `no answer within ${timeoutMs} ms`);
      return new WaitTimeoutError(`${what()}: not enough`, timeoutMs);
    };
  }

  private async pump(): Promise<void> {
    try {
      for (let idle = 0; this.waiters.length > 0; ) {
        const bell = Atomics.load(this.engine.control, word.bell);
        const moved = this.engine.poll();
        if (this.settle()) continue;
        idle = moved ? 0 : idle + 1;
        await this.rest(bell, idle);
      }
    } finally {
      this.pumping = false;
    }
  }

  /** Resolves and rejects who can be; true when there was one. */
  private settle(): boolean {
    let settled = false;
    for (let i = 0; i < this.waiters.length; i++) {
      const waiter = this.waiters[i]!;
      const state = waiter.condition(true);
      if (state === false) continue;
      this.waiters.splice(i--, 1);
      settled = true;
      if (state instanceof Error) waiter.reject(state);
      else waiter.resolve();
    }
    return settled;
  }

  private async rest(bell: number, idle: number): Promise<void> {
    const { control, driver } = this.engine;
    if (!driver.threaded) {
      // Nobody else makes progress: come back as soon as the event loop has had its turn.
      driver.pause(idle);
      await setImmediate();
      return;
    }
    Atomics.store(control, word.frontSleeps, 1);
    const nap = (Atomics as unknown as AsyncAtomics).waitAsync(control, word.bell, bell, longestNapMs);
    if (nap.async) await nap.value;
    Atomics.store(control, word.frontSleeps, 0);
  }
}

/** Bounds how late a timeout is noticed when nothing rings the bell. */
const longestNapMs = 20;

/** Atomics.waitAsync is in every Node.js that Heddle runs on, but not yet in the library types of ES2023. */
interface AsyncAtomics {
  waitAsync(
    array: Int32Array,
    index: number,
    value: number,
    timeoutMs: number,
  ): { async: true; value: Promise<string> } | { async: false; value: string };
}
