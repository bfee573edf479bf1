import { eventWords, peerLost, type Shared, word } from './shared.js';

/** The messages of the core to the caller: ends of operations, losses of peers, and that there is something to look at. */
export class Reports {
  readonly #control: Int32Array;
  readonly #events: Int32Array;
  readonly #mask: number;
  /** Requests left of each operation, by ticket. */
  readonly #remaining: Int32Array;
  readonly #peerWords: Int32Array;
  /** Of each operation under way, what went wrong first: the error number, and the peer that it is about. */
  readonly #failures: Int32Array;
  #tail = 0;
  /** The events since the bell was last rung, and how often it was rung for one thing. */
  #happened = 0;
  #bell: number;
  /** Whether something happened that ends every wait at once, such as the loss of a peer, however many events the wait still lacks. */
  #urgent = false;

  constructor(shared: Shared) {
    this.#control = new Int32Array(shared.control);
    this.#events = new Int32Array(shared.events);
    this.#remaining = new Int32Array(shared.remaining);
    this.#peerWords = new Int32Array(shared.peers);
    this.#bell = this.#control[word.bell]!;
    this.#mask = this.#remaining.length - 1;
    this.#failures = new Int32Array(this.#remaining.length * 2);
  }

  /** A request to `peer` has ended, well if `code` is 0; the last of an operation ends the operation. */
  requestEnded(ticket: number, peer: number, code: number): void {
    // Only room in the queue hangs on this count: the event or the bell after it publishes what matters.
    const done = 2 * peer + 1;
    this.#peerWords[done] = this.#peerWords[done]! + 1;
    if (code !== 0 && this.#failures[2 * ticket] === 0) {
      this.#failures[2 * ticket] = code;
      this.#failures[2 * ticket + 1] = peer;
    }
    const left = this.#remaining[ticket]! - 1;
    this.#remaining[ticket] = left;
    if (left === 0) {
      const at = (this.#tail & this.#mask) * eventWords;
      this.#events[at] = ticket;
      this.#events[at + 1] = this.#failures[2 * ticket]!;
      this.#events[at + 2] = this.#failures[2 * ticket + 1]!;
      this.#failures[2 * ticket] = 0;
      this.#tail = (this.#tail + 1) | 0;
      Atomics.store(this.#control, word.eventTail, this.#tail);
    }
    this.#happened++;
  }

  /** A write or a message of a peer's has landed. */
  landed(): void {
    this.#happened++;
  }

  peerLost(peer: number): void {
    Atomics.store(this.#peerWords, 2 * peer, peerLost);
    this.#happened++;
    this.#urgent = true;
  }

  /** An immediate for which there is no counter left has landed: the engine is of no use any more. */
  immediateLost(): void {
    Atomics.store(this.#control, word.immediatesLost, 1);
    this.#happened++;
    this.#urgent = true;
  }

  /** Says how much has happened, and wakes a caller that waits for no more than that. */
  ring(): void {
    if (this.#happened === 0) return;
    const control = this.#control;
    this.#bell = (this.#bell + this.#happened) | 0;
    this.#happened = 0;
    Atomics.store(control, word.bell, this.#bell);
    if (Atomics.load(control, word.callerSleeps) === 0) return;
    if (!this.#urgent && ((this.#bell - Atomics.load(control, word.wakeAt)) | 0) < 0) return;
    this.#urgent = false;
    Atomics.store(control, word.callerSleeps, 0);
    Atomics.notify(control, word.callerSleeps);
  }
}
