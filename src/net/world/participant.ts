import {
  ArgumentError,
  DisposedError,
  HeddleError,
  messageOf,
  RankLostError,
  requireArray,
  requireFunction,
  requireInteger,
  requireOneOf,
  requireText,
} from '../../base/errors.js';
import {
  type Circle,
  type CircleLoss,
  type CircleOptions,
  DEFAULT_TIMEOUT_MS,
  LONGEST_TIMEOUT_MS,
  MAX_NAME,
  MAX_PAYLOAD,
  MAX_RANKS,
  type TakesIn,
  takesIn,
} from './circle.js';
import type { Call, CallKind, Loss } from './exchange.js';

interface Renewal {
  resolve(next: Participant): void;
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
 * One rank's side of a circle: checks arguments, keeps its pending calls, remembers losses. How a call
 * reaches the exchange is left to the kind of circle.
 */
export abstract class Participant implements Circle {
  readonly rank: number;
  readonly ranks: number;
  readonly origins: readonly number[];
  protected readonly timeoutMs: number;
  readonly #pending = new Map<number, Pending>();
  readonly #losses: CircleLoss[] = [];
  readonly #listeners = new Set<(loss: CircleLoss) => void>();
  readonly #abort = new AbortController();
  #calls = 0;
  #newcomers = 0;
  #rejoining = 0;
  /** A rank that left and took the meeting place with it. */
  #departed: Omit<Loss, 'operation'> | undefined;
  #disposal: Promise<void> | undefined;
  #renewal: Renewal | undefined;
  /** Why the world cannot be renewed. */
  #ended: Error | undefined;
  #next: Participant | undefined;

  protected constructor(rank: number, origins: readonly number[], options: CircleOptions) {
    this.origins = origins;
    this.ranks = requireInteger('ranks', origins.length, 1, MAX_RANKS);
    this.rank = requireInteger('rank', rank, 0, this.ranks - 1);
    const { timeoutMs = DEFAULT_TIMEOUT_MS } = options;
    this.timeoutMs = requireInteger('timeoutMs', timeoutMs, 1, LONGEST_TIMEOUT_MS);
  }

  /** Alone in its process, where nothing else is said. */
  get place(): object {
    return this;
  }

  get latest(): Participant {
    return this.#next?.latest ?? this;
  }

  /** Hands the call to the exchange, which answers with `completed` or `failed`, or `renewed`. */
  protected abstract arrive(call: Call): void;
  /** Tells the exchange of ranks that are lost, this one or others; the exchange answers with `lost`. */
  protected abstract giveUp(ranks: readonly number[], reason: string): void;
  /** Tells the exchange that this rank leaves, and lets go of what connects them. */
  protected abstract leave(): Promise<void>;
  /** Hears whether calls are pending: only those need to keep the process alive. */
  protected waiting(_pending: boolean): void {}

  get newcomers(): number {
    return this.#newcomers;
  }

  get rejoining(): number {
    return this.#rejoining;
  }

  get out(): boolean {
    return this.#ownLoss !== undefined;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  async barrier(operation = 'barrier'): Promise<void> {
    await this.#call('barrier', operation, new Uint8Array(0));
  }

  async allGather(bytes: Uint8Array, operation = 'allGather'): Promise<Uint8Array[]> {
    return await this.#call('allGather', operation, requireBytes(bytes));
  }

  async survey(bytes: Uint8Array, ms: number): Promise<Uint8Array[]> {
    requireInteger('ms', ms, 1, LONGEST_TIMEOUT_MS);
    return await this.#call('survey', 'survey', requireBytes(bytes), ms);
  }

  onRankLost(listener: (loss: CircleLoss) => void): () => void {
    requireFunction('listener', listener);
    this.#listeners.add(listener);
    for (const loss of this.#losses) this.#tell(listener, loss);
    return () => this.#listeners.delete(listener);
  }

  abandon(reason: string): void {
    requireText('reason', reason);
    this.#requireOpen();
    this.giveUp([this.rank], reason);
  }

  accuse(ranks: readonly number[], reason: string): void {
    requireText('reason', reason);
    requireArray('ranks', ranks, 'an array of ranks');
    for (const rank of ranks) requireInteger('ranks', rank, 0, this.ranks - 1);
    this.#requireOpen();
    this.giveUp(ranks, `rank ${this.rank} says: ${reason}`);
  }

  async rejoin(): Promise<Participant> {
    if (!this.out || this.#next !== undefined) throw new HeddleError('HEDDLE_NOT_OUT', notOut(this.rank));
    this.#next = await this.waitOutside();
    passing('rejoin', 'taken in');
    return this.#next;
  }

  /** Waits until those that have lost this rank take it in. */
  protected abstract waitOutside(): Promise<Participant>;

  async renew(timeoutMs = this.timeoutMs, who: TakesIn = 'newcomers'): Promise<Participant> {
    requireInteger('timeoutMs', timeoutMs, 1, LONGEST_TIMEOUT_MS);
    requireOneOf('takesIn', who, takesIn);
    this.#requireOpen();
    if (this.#ended) throw this.#ended;
    const own = this.#ownLoss;
    if (own) throw own;
    this.#rejectAll(() => this.#disposed());
    const id = this.#calls++;
    return new Promise((resolve, reject) => {
      this.#renewal = { resolve, reject };
      this.#keepWaiting();
      passing('renewal', 'called');
      this.arrive({ id, kind: who, operation: 'renewal', bytes: new Uint8Array(0), timeoutMs });
    });
  }

  dispose(): Promise<void> {
    this.#disposal ??= this.#dispose();
    return this.#disposal;
  }

  async #dispose(): Promise<void> {
    this.#rejectAll(() => this.#disposed());
    this.#failRenewal(() => this.#disposed());
    this.#listeners.clear();
    await this.leave();
  }

  /** A world disposes of its circle when its program returns: who comes after that was mostly not awaited. */
  #disposed(): DisposedError {
    const remedy = this.#renewal
      ? 'its world is renewed: use what renew() gives'
      : 'await every call before the program of its world returns, or make a new world';
    return new DisposedError(`rank ${this.rank}'s circle`, remedy);
  }

  #call(
    kind: CallKind,
    operation: string,
    bytes: Uint8Array,
    timeoutMs = this.timeoutMs,
  ): Promise<Uint8Array[]> {
    if (typeof operation !== 'string' || operation.length === 0 || operation.length > MAX_NAME) {
      throw new ArgumentError('operation', operation, `a name of 1 to ${MAX_NAME} characters`);
    }
    this.#requireOpen();
    if (this.#losses.length > 0) throw this.#lossIn(operation);
    if (this.#departed) throw toError({ ...this.#departed, operation });
    const id = this.#calls++;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { operation, resolve, reject });
      this.#keepWaiting();
      passing(operation, 'called');
      this.arrive({ id, kind, operation, bytes, timeoutMs });
    });
  }

  protected completed(id: number, parts: Uint8Array[]): void {
    const call = this.#take(id);
    if (call === undefined) return;
    passing(call.operation, 'completed');
    call.resolve(parts);
  }

  protected failed(id: number, loss: Loss): void {
    this.#take(id)?.reject(toError(loss));
  }

  protected lost(loss: CircleLoss): void {
    if (this.#disposal) return;
    this.#losses.push(loss);
    // In this order, so that whoever sees a call reject finds the signal aborted and the listeners told.
    this.#abort.abort(loss);
    for (const listener of this.#listeners) this.#tell(listener, loss);
    const own = this.#ownLoss;
    if (own) this.#failRenewal(() => own);
    this.#rejectAll((operation) => this.#lossIn(operation));
  }

  /** No call can complete any more, yet nobody needs alarm: the rank that hosts the exchange left. */
  protected departed(departed: Omit<Loss, 'operation'>): void {
    this.#departed = departed;
    this.#rejectAll((operation) => toError({ ...departed, operation }));
  }

  /** The exchange is gone, and with it every renewal. */
  protected ended(error: Error): void {
    this.#ended = error;
    this.#failRenewal(() => error);
  }

  protected othersWait(newcomers: number, rejoining: number): void {
    this.#newcomers = newcomers;
    this.#rejoining = rejoining;
  }

  /** Those that are left go on in the next circle. */
  protected renewed(next: Participant): void {
    this.#next = next;
    this.#disposal = Promise.resolve();
    this.waiting(false);
    passing('renewal', 'completed');
    this.#renewal?.resolve(next);
  }

  /** The renewal came to nothing; a further one would for the same reason. */
  #failRenewal(why: () => Error): void {
    const renewal = this.#renewal;
    if (renewal === undefined) return;
    this.#renewal = undefined;
    this.#keepWaiting();
    renewal.reject(why());
  }

  /** That this rank is the one that the others have lost. */
  get #ownLoss(): CircleLoss | undefined {
    return this.#losses.find((loss) => loss instanceof RankLostError && loss.ranks.includes(this.rank));
  }

  #requireOpen(): void {
    if (this.#disposal || this.#renewal) throw this.#disposed();
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
    this.waiting(this.#pending.size > 0 || this.#renewal !== undefined);
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

export function toError(loss: Loss): RankLostError {
  return new RankLostError(loss.ranks, loss.operation, undefined, { cause: new Error(loss.why) });
}

/**
 * The points that a rank passes when it joins a world, makes something there with the others, renews it or leaves. Tests make a
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
