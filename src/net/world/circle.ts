import {
  ArgumentError,
  DisposedError,
  HeddleError,
  messageOf,
  RankLostError,
  type RendezvousError,
  requireArray,
  requireFlag,
  requireFunction,
  requireInteger,
  requireText,
} from '../../base/errors.js';
import {
  type Call,
  type CallKind,
  LONGEST_TIMEOUT_MS,
  type Loss,
  MAX_NAME,
  MAX_PAYLOAD,
  MAX_RANKS,
  type Seat,
} from './exchange.js';

/** A lost rank, or the loss of the process that hosts the rendezvous when that is not a rank. */
export type CircleLoss = RankLostError | RendezvousError;

/** How long a circle waits. */
export interface CircleOptions {
  /**
   * How long a call waits for the slowest rank, in ms, counted from the first rank that made it; then the
   * ranks that did not come are lost. Default 60,000.
   */
  readonly timeoutMs?: number;
}

export const DEFAULT_TIMEOUT_MS = 60_000;

/**
 * A rank's way to the place where its circle meets, whatever hosts that. One link serves all circles of a world, one after the other:
 * it tells the present one what comes.
 */
export interface Link {
  /** Makes a call. The circle's events say how it ends: `completed`, `failed` or `lost`; a regrouping `regrouped`, `lost` or `ended`. */
  arrive(call: Call): void;
  /** Says that ranks are lost, this one or others. The circle's events have it as `lost`. */
  giveUp(ranks: readonly number[], reason: string): void;
  /** Leaves in good order, and lets go of everything. Nothing is heard any more. */
  leave(): Promise<void>;
  /** Whether the link alone keeps the process alive. */
  keepAlive(yes: boolean): void;
}

/** The events of a link: what is said to a seat where the circle meets, and what becomes of that place. */
export interface CircleEvents extends Omit<Seat, 'lost' | 'regrouped'> {
  lost(loss: Loss | CircleLoss): void;
  /** The ranks of these origins go on, this one as `rank`. This circle is over; the next one sets its own events. */
  regrouped(origins: readonly number[], rank: number): void;
  /** The place is gone with a rank that left: no call can complete any more, yet nobody needs alarm. */
  departed(departed: Departed): void;
  /** The place is gone: nobody can regroup any more. */
  ended(error: Error): void;
}

/** The rank that left; or, where a process that is no rank hosted the place, the error that every call then throws. */
type Departed = Omit<Loss, 'operation'> | RendezvousError;

/** A link to another process. */
export interface FarLink extends Link {
  /** Sets the events that are called from now on. */
  hear(events: CircleEvents): void;
}

interface Regrouping {
  resolve(next: Circle): void;
  reject(error: Error): void;
}

interface Pending {
  readonly operation: string;
  resolve(parts: Uint8Array[]): void;
  reject(error: Error): void;
}

/** The handling of a rank whose program has thrown, and of each whose program has ended. */
interface Ends<Rank> {
  lose(rank: Rank, reason: string): void;
  ended(rank: Rank): void | Promise<void>;
}

/** Runs one program for each of these ranks. The first error is thrown when every program has ended. */
export async function runEach<Rank, T>(
  ranks: readonly Rank[],
  program: (rank: Rank) => Promise<T>,
  { lose, ended }: Ends<Rank>,
): Promise<T[]> {
  const failures: unknown[] = [];
  const runOne = async (rank: Rank): Promise<T | undefined> => {
    try {
      return await program(rank);
    } catch (error) {
      failures.push(error);
      lose(rank, messageOf(error));
      return undefined;
    } finally {
      await ended(rank);
    }
  };
  const results = await Promise.all(ranks.map(runOne));
  if (failures.length > 0) throw failures[0];
  return results as T[];
}

/**
 * The ranks of a world as a bare circle: they can wait for each other, exchange small byte strings and hear
 * of each other's loss. Windows, devices and kernels stand on top of it.
 *
 * Every rank makes the same calls. Calls are matched by their kind, their operation's name and, for equal
 * names, their order; calls with different names may be under way at once, in any order.
 *
 * This is one rank's side: it checks arguments, keeps the calls that are pending, and remembers losses.
 */
export abstract class Circle {
  /** This rank, from 0. */
  readonly rank: number;
  /** How many ranks there are. */
  readonly ranks: number;
  /** By rank: its number when the world began. A rank that was admitted later has a higher one. */
  readonly origins: readonly number[];
  readonly #timeoutMs: number;
  readonly #link: Link;
  readonly #pending = new Map<number, Pending>();
  readonly #losses: CircleLoss[] = [];
  readonly #listeners = new Set<(loss: CircleLoss) => void>();
  readonly #abort = new AbortController();
  #calls = 0;
  #outsiders = 0;
  /** A process that left and took the meeting place with it. */
  #departed: Departed | undefined;
  #disposal: Promise<void> | undefined;
  #regrouping: Regrouping | undefined;
  /** Aborted when this rank leaves, which ends `rejoin`. */
  readonly #leaving = new AbortController();
  /** Why nobody can regroup. */
  #ended: Error | undefined;
  #next: Circle | undefined;

  protected constructor(rank: number, origins: readonly number[], options: CircleOptions, link: Link) {
    this.origins = origins;
    this.ranks = requireInteger('ranks', origins.length, 1, MAX_RANKS);
    this.rank = requireInteger('rank', rank, 0, this.ranks - 1);
    const { timeoutMs = DEFAULT_TIMEOUT_MS } = options;
    this.#timeoutMs = requireInteger('timeoutMs', timeoutMs, 1, LONGEST_TIMEOUT_MS);
    this.#link = link;
  }

  /** One and the same object for the ranks of this process. This rank is alone in it, where nothing else is said. */
  get place(): object {
    return this;
  }

  /** This circle, or the one in which its ranks went on last. */
  get latest(): Circle {
    return this.#next?.latest ?? this;
  }

  /** How many outsiders wait to be admitted, as far as this rank has heard. */
  get outsiders(): number {
    return this.#outsiders;
  }

  /** Whether the others have lost this rank, which runs: it can `rejoin`. */
  get out(): boolean {
    return this.#ownLoss !== undefined;
  }

  /** Aborted when a rank is lost, with that RankLostError as its reason; never by a clean leave. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Resolves when every rank has come here. */
  async barrier(operation = 'barrier'): Promise<void> {
    await this.#call('barrier', operation, new Uint8Array(0));
  }

  /** Gives every rank the bytes of all ranks, by rank. Up to 1 MiB from each; lengths may differ. */
  async allGather(bytes: Uint8Array, operation = 'allGather'): Promise<Uint8Array[]> {
    return await this.#call('allGather', operation, requireBytes(bytes));
  }

  /**
   * Says something to the others, in up to 1 MiB, and gives what each rank has said here since all last met, by rank: empty where it
   * said nothing. That is known as soon as no more than one rank has said nothing, and after `ms` at the latest. No rank is lost for it.
   */
  async survey(bytes: Uint8Array, ms: number): Promise<Uint8Array[]> {
    requireInteger('ms', ms, 1, LONGEST_TIMEOUT_MS);
    return await this.#call('survey', 'survey', requireBytes(bytes), ms);
  }

  /** Calls the listener at each loss, also for losses before this call. Returns what removes it. */
  onRankLost(listener: (loss: CircleLoss) => void): () => void {
    requireFunction('listener', listener);
    this.#listeners.add(listener);
    for (const loss of this.#losses) this.#tell(listener, loss);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Says that this rank cannot go on. Every rank, this one too, sees it lost at once, with the reason as
   * the error's cause, instead of after a timeout.
   */
  abandon(reason: string): void {
    requireText('reason', reason);
    this.#requireOpen();
    // Whoever waits to hear of it must not end before.
    this.#link.keepAlive(true);
    this.#link.giveUp([this.rank], reason);
  }

  /** Says that this rank cannot go on, since its program has failed. Of no effect where it has left. @internal */
  fail(reason: string): void {
    if (this.#disposal === undefined) this.#link.giveUp([this.rank], reason);
  }

  /**
   * Says that ranks do not answer this one, so that it cannot go on with them: every rank sees them lost at once, with the
   * reason. The first that speaks is believed. `as`: by what number the reason names this one, where its world counts otherwise.
   */
  accuse(ranks: readonly number[], reason: string, as = this.rank): void {
    requireText('reason', reason);
    requireArray('ranks', ranks, 'an array of ranks');
    for (const rank of ranks) requireInteger('ranks', rank, 0, this.ranks - 1);
    this.#requireOpen();
    this.#link.giveUp(ranks, `rank ${as} says: ${reason}`);
  }

  /**
   * Waits, as a rank that the others have lost though it runs, until they admit it again, and gives the circle in which they do.
   * This rank has another number there, and another origin.
   */
  async rejoin(): Promise<Circle> {
    if (!this.out || this.#next !== undefined) throw new HeddleError('HEDDLE_NOT_OUT', notOut(this.rank));
    this.#requireOpen();
    this.#next = await this.waitOutside(this.#leaving.signal);
    passing('rejoin', 'admitted');
    return this.#next;
  }

  /** Waits until the ranks that have lost this one admit it. Rejects once the signal is aborted. */
  protected abstract waitOutside(leaving: AbortSignal): Promise<Circle>;

  /**
   * Goes on without the ranks that were lost or have left: gives a circle of those that are left, in the same order. Behind them it has
   * the outsiders that wait, if `admit` says so, the same on all ranks. Every rank that is left calls it; one that does not come within
   * `timeoutMs` is lost too. This circle is over then, and nothing is to be disposed of.
   * @throws RendezvousError where the process that hosts the rendezvous is gone.
   */
  async regroup(timeoutMs = this.#timeoutMs, admit = false): Promise<Circle> {
    requireInteger('timeoutMs', timeoutMs, 1, LONGEST_TIMEOUT_MS);
    requireFlag('admit', admit);
    this.#requireOpen();
    const own = this.#ownLoss;
    if (own) throw own;
    if (this.#ended) throw this.#ended;
    this.#rejectAll(() => this.#disposed());
    const id = this.#calls++;
    return new Promise((resolve, reject) => {
      this.#regrouping = { resolve, reject };
      this.#keepWaiting();
      passing('regroup', 'called');
      const kind = admit ? 'admit' : 'regroup';
      this.#link.arrive({ id, kind, operation: 'regrouping', bytes: new Uint8Array(0), timeoutMs });
    });
  }

  /**
   * Leaves. That is no loss: the others are not alarmed, and only a call that needs this rank rejects.
   * Calls of this rank that are still pending reject with DisposedError.
   */
  dispose(): Promise<void> {
    this.#disposal ??= this.#dispose();
    return this.#disposal;
  }

  async #dispose(): Promise<void> {
    this.#rejectAll(() => this.#disposed());
    this.#failRegrouping(() => this.#disposed());
    this.#leaving.abort(this.#disposed());
    this.#listeners.clear();
    await this.leave();
  }

  protected leave(): Promise<void> {
    return this.#link.leave();
  }

  /** A world disposes of its circle when its program returns: who comes after that was mostly not awaited. */
  #disposed(): DisposedError {
    const remedy = this.#regrouping
      ? 'its ranks go on in another: use what regroup() gives'
      : 'await every call before the program of its world returns, or make a new world';
    return new DisposedError(`rank ${this.rank}'s circle`, remedy);
  }

  #call(
    kind: CallKind,
    operation: string,
    bytes: Uint8Array,
    timeoutMs = this.#timeoutMs,
  ): Promise<Uint8Array[]> {
    if (typeof operation !== 'string' || operation.length === 0 || operation.length > MAX_NAME) {
      throw new ArgumentError('operation', operation, `a name of 1 to ${MAX_NAME} characters`);
    }
    this.#requireOpen();
    if (this.#losses.length > 0) throw this.#lossIn(operation);
    if (this.#departed) throw departedIn(this.#departed, operation);
    const id = this.#calls++;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { operation, resolve, reject });
      this.#keepWaiting();
      passing(operation, 'called');
      this.#link.arrive({ id, kind, operation, bytes, timeoutMs });
    });
  }

  protected readonly events: Omit<CircleEvents, 'regrouped'> = {
    completed: (id, parts) => {
      const call = this.#take(id);
      if (call === undefined) return;
      passing(call.operation, 'completed');
      call.resolve([...parts]);
    },
    failed: (id, loss) => this.#take(id)?.reject(toError(loss)),
    lost: (said) => {
      if (this.#disposal) return;
      const loss = said instanceof Error ? said : toError(said);
      this.#losses.push(loss);
      // In this order, so that whoever sees a call reject finds the signal aborted and the listeners told.
      this.#abort.abort(loss);
      for (const listener of this.#listeners) this.#tell(listener, loss);
      const own = this.#ownLoss;
      if (own) this.#failRegrouping(() => own);
      this.#rejectAll((operation) => this.#lossIn(operation));
    },
    waiting: (outsiders) => {
      this.#outsiders = outsiders;
    },
    departed: (departed) => {
      this.#departed = departed;
      this.#rejectAll((operation) => departedIn(departed, operation));
    },
    ended: (error) => {
      this.#ended = error;
      this.#failRegrouping(() => error);
    },
  };

  /** The ranks that are left go on in the next circle. */
  protected goOn(next: Circle): void {
    this.#next = next;
    this.#disposal = Promise.resolve();
    this.#link.keepAlive(false);
    passing('regroup', 'completed');
    this.#regrouping?.resolve(next);
  }

  /** The regrouping came to nothing; a further one would for the same reason. */
  #failRegrouping(why: () => Error): void {
    const regrouping = this.#regrouping;
    if (regrouping === undefined) return;
    this.#regrouping = undefined;
    this.#keepWaiting();
    regrouping.reject(why());
  }

  /** The loss of this very rank, where the others have lost it. */
  get #ownLoss(): CircleLoss | undefined {
    return this.#losses.find((loss) => loss instanceof RankLostError && loss.ranks.includes(this.rank));
  }

  #requireOpen(): void {
    if (this.#disposal || this.#regrouping) throw this.#disposed();
  }

  #rejectAll(why: (operation: string) => Error): void {
    for (const [id, { operation }] of [...this.#pending]) this.#take(id)?.reject(why(operation));
  }

  /** The losses so far, as the error of a call that comes to nothing because of them. */
  #lossIn(operation: string): CircleLoss {
    const first = this.#losses[0]!;
    if (!(first instanceof RankLostError)) return first;
    const ranks = this.#losses.flatMap((loss) => (loss instanceof RankLostError ? loss.ranks : []));
    return new RankLostError(
      ranks.sort((a, b) => a - b),
      operation,
      undefined,
      { cause: first.cause },
    );
  }

  /** Later, and each on its own, so that a listener that throws hinders nobody. */
  #tell(listener: (loss: CircleLoss) => void, loss: CircleLoss): void {
    queueMicrotask(() => {
      if (this.#listeners.has(listener)) listener(loss);
    });
  }

  #take(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    this.#keepWaiting();
    return pending;
  }

  #keepWaiting(): void {
    this.#link.keepAlive(this.#pending.size > 0 || this.#regrouping !== undefined);
  }
}

function requireBytes(bytes: unknown): Uint8Array {
  if (!(bytes instanceof Uint8Array)) throw new ArgumentError('bytes', bytes, 'a Uint8Array');
  if (bytes.length > MAX_PAYLOAD)
    throw new ArgumentError('bytes', bytes, `at most ${MAX_PAYLOAD} bytes (1 MiB) a rank`);
  return bytes;
}

/** Why a rank cannot rejoin its world. */
export const notOut = (rank: number): string =>
  `rank ${rank} takes part in its world: there is nothing to rejoin`;

const departedIn = (departed: Departed, operation: string): CircleLoss =>
  departed instanceof Error ? departed : toError({ ...departed, operation });

function toError(loss: Loss): RankLostError {
  return new RankLostError(loss.ranks, loss.operation, undefined, { cause: new Error(loss.why) });
}

/**
 * The points that a rank passes when it joins a world, makes something there with the others, goes on without some of them, or leaves. Tests make a
 * rank fall at each of them. Nobody else listens, and then a point costs a comparison.
 */
let listener: ((what: string, step: string) => void) | null = null;

/** A rank is at this step of what it does. */
export function passing(what: string, step: string): void {
  if (listener !== null) listener(what, step);
}

/** For tests alone: hears of every point, in the middle of what the rank does. */
export function onPassing(hear: typeof listener): void {
  listener = hear;
}
