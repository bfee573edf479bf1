import { controlWord, eventWords, peerLost, type Shared } from './shared.js';

/** The messages of the core to the caller: ends of operations, losses of peers, and that there is something to look at. */
export function createReports(shared: Shared) {
  const control = new Int32Array(shared.control);
  const events = new Int32Array(shared.events);
  /** Requests left of each operation, by ticket. */
  const remaining = new Int32Array(shared.remaining);
  const peerWords = new Int32Array(shared.peers);
  const mask = remaining.length - 1;
  /** The first failure of each operation under way: the error number, and the peer that it is about. */
  const failures = new Int32Array(remaining.length * 2);
  let tail = 0;
  /** The events since the bell was last rung, and how often it was rung for one thing. */
  let happened = 0;
  let bell = control[controlWord.bell]!;
  /** Whether something happened that ends every wait at once, such as the loss of a peer, however many events the wait still lacks. */
  let urgent = false;

  /** A request to `peer` has ended, well if `code` is 0; the last of an operation ends the operation. */
  function requestEnded(ticket: number, peer: number, code: number): void {
    // Only room in the queue hangs on this count: the event or the bell after it publishes what matters.
    const done = 2 * peer + 1;
    peerWords[done] = peerWords[done]! + 1;
    if (code !== 0 && failures[2 * ticket] === 0) {
      failures[2 * ticket] = code;
      failures[2 * ticket + 1] = peer;
    }
    const left = remaining[ticket]! - 1;
    remaining[ticket] = left;
    if (left === 0) {
      const at = (tail & mask) * eventWords;
      events[at] = ticket;
      events[at + 1] = failures[2 * ticket]!;
      events[at + 2] = failures[2 * ticket + 1]!;
      failures[2 * ticket] = 0;
      tail = (tail + 1) | 0;
      Atomics.store(control, controlWord.eventTail, tail);
    }
    happened++;
  }

  function landed(): void {
    happened++;
  }

  function loseAPeer(peer: number): void {
    Atomics.store(peerWords, 2 * peer, peerLost);
    happened++;
    urgent = true;
  }

  /** An immediate for which there is no counter left has landed: the engine is of no use any more. */
  function immediateLost(): void {
    Atomics.store(control, controlWord.immediatesLost, 1);
    happened++;
    urgent = true;
  }

  /** Says how much has happened, and wakes a caller that waits for no more than that. */
  function ring(): void {
    if (happened === 0) return;
    bell = (bell + happened) | 0;
    happened = 0;
    Atomics.store(control, controlWord.bell, bell);
    if (Atomics.load(control, controlWord.callerSleeps) === 0) return;
    if (!urgent && ((bell - Atomics.load(control, controlWord.wakeAt)) | 0) < 0) return;
    urgent = false;
    Atomics.store(control, controlWord.callerSleeps, 0);
    Atomics.notify(control, controlWord.callerSleeps);
  }

  return { requestEnded, landed, peerLost: loseAPeer, immediateLost, ring };
}
