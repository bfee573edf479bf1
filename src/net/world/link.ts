import type { CircleLoss } from './circle.js';
import type { Call, Loss } from './exchange.js';

/** A rank's way to the place where its circle meets, whatever hosts that. One link serves all circles of a world, one after the other. */
export interface Link {
  /** Sets the listener, from now on. */
  hear(hearer: Hearer): void;
  /** A call, which ends by `completed`, `failed` or `lost`; a renewal by `renewed`, `lost` or `ended`. A newcomer's first says that it waits. */
  arrive(call: Call): void;
  /** Says that ranks are lost. */
  giveUp(ranks: readonly number[], reason: string): void;
  /** Leaves in good order, and lets go of everything. Nothing is heard any more. */
  leave(): Promise<void>;
  /** Whether the link alone keeps the process alive. */
  keepAlive(yes: boolean): void;
}

/** Messages that come over a link, told to the circle of these days. */
export interface Hearer {
  completed(id: number, parts: Uint8Array[]): void;
  failed(id: number, loss: Loss): void;
  lost(loss: CircleLoss): void;
  /** These go on, this one as `rank`. The circle that hears it is over; the next one says that it hears. */
  renewed(origins: readonly number[], rank: number): void;
  /** So many newcomers wait, and so many ranks that come back. */
  waiting(newcomers: number, rejoining: number): void;
  /** The place is gone with a rank that left: no call can complete any more, yet nobody needs alarm. */
  departed(departed: Omit<Loss, 'operation'>): void;
  /** The place is gone, and with it every renewal. */
  ended(error: Error): void;
}
