import type { RankLostError, RendezvousError } from '../../base/errors.js';
import { maxWorldRanks } from '../../gpu/index.js';

/**
 * The ranks of a world as a bare circle: they can wait for each other, exchange small byte strings and hear
 * of each other's loss. Windows, devices and kernels stand on top of it.
 *
 * Every rank makes the same calls. Calls are matched by their kind, their operation's name and, for equal
 * names, their order; calls with different names may be under way at once, in any order.
 */
export interface Circle {
  /** This rank, from 0. */
  readonly rank: number;
  /** How many ranks there are. */
  readonly ranks: number;
  /** By rank: what it was numbered when the world began; newcomers have higher numbers. It differs in a circle that was renewed. */
  readonly origins: readonly number[];
  /** One and the same object for the ranks of this process. */
  readonly place: object;
  /** This circle, or what it was renewed to last. */
  readonly latest: Circle;
  /** How many newcomers wait for the next renewal, as far as this rank has heard; and how many ranks that come back. */
  readonly newcomers: number;
  readonly rejoining: number;
  /** Whether the others have lost this rank, which runs: it can `rejoin`. */
  readonly out: boolean;
  /** Aborted when a rank is lost, with that RankLostError as its reason; never by a clean leave. */
  readonly signal: AbortSignal;
  /** Resolves when every rank has come here. */
  barrier(operation?: string): Promise<void>;
  /** Gives every rank the bytes of all ranks, by rank. Up to 1 MiB from each; lengths may differ. */
  allGather(bytes: Uint8Array, operation?: string): Promise<Uint8Array[]>;
  /**
   * Says something to the others, in up to 1 MiB, and gives what each rank has said here since all last met, by rank: empty where it
   * said nothing. That is known as soon as no more than one rank has said nothing, and after `ms` at the latest. No rank is lost for it.
   */
  survey(bytes: Uint8Array, ms: number): Promise<Uint8Array[]>;
  /** Calls the listener at each loss, also for losses before this call. Returns what removes it. */
  onRankLost(listener: (loss: CircleLoss) => void): () => void;
  /**
   * Says that this rank cannot go on. Every rank, this one too, sees it lost at once, with the reason as
   * the error's cause, instead of after a timeout.
   */
  abandon(reason: string): void;
  /**
   * Says that ranks do not answer this one, so that it cannot go on with them: every rank sees them lost at once, with the
   * reason. The first that speaks is believed.
   */
  accuse(ranks: readonly number[], reason: string): void;
  /**
   * Goes on without the ranks that were lost or have left: a circle of those that are left, in the same order, and behind them
   * of those that wait and are to be taken in: newcomers, unless it says something else. Every rank that is left calls it; one that
   * does not come within `timeoutMs` is lost too. This circle is over then, and nothing is to be disposed of.
   * @throws where the process that hosts the rendezvous is gone.
   */
  renew(timeoutMs?: number, takesIn?: TakesIn): Promise<Circle>;
  /**
   * Of a rank that the others have lost, though it runs: waits until they take it in again, and gives the circle in which they do.
   * It has another number then, and another origin.
   */
  rejoin(): Promise<Circle>;
  /**
   * Leaves. That is no loss: the others are not alarmed, and only a call that needs this rank rejects.
   * Calls of this rank that are still pending reject with DisposedError.
   */
  dispose(): Promise<void>;
}

/** Those that wait and are taken in by a renewal: processes that are to be ranks of a new world, or ranks that were left out of this one. */
export const takesIn = ['newcomers', 'rejoining', 'nobody'] as const;
export type TakesIn = (typeof takesIn)[number];

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
/** The longest delay that a timer of Node.js takes. */
export const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/** The most bytes that one rank may bring to one allGather. */
export const MAX_PAYLOAD = 1 << 20;
/** The most ranks in a circle: with MAX_PAYLOAD it bounds every message. */
export const MAX_RANKS = maxWorldRanks;
/** The longest name of an operation, in UTF-16 units. */
export const MAX_NAME = 200;
