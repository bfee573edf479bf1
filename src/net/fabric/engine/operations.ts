import { controlWord, eventWords, type Shared } from '../core/shared.js';
import { type Peer, PeerGroup, type Region } from './handles.js';

/** How many operations were posted, and how they have ended. */
export interface Tally {
  posted: number;
  completed: number;
  failed: number;
  error: Error | null;
}

export type Operations = ReturnType<typeof createOperations>;

/**
 * The operations under way, one a ticket. Everything that is told about an operation when it ends is kept in
 * arrays by ticket, so that beginning one allocates nothing.
 */
export function createOperations(
  shared: Shared,
  /** Makes the error of an operation from the core's error number and the peer that it is about. */
  failure: (code: number, peer: number, operation: string, target: Peer | PeerGroup) => Error,
) {
  /** How many requests of each operation have not ended. The caller sets it before it publishes the command; from then on only the core writes it. */
  const remaining = new Int32Array(shared.remaining);
  const control = new Int32Array(shared.control);
  const events = new Int32Array(shared.events);
  const capacity = remaining.length;
  const freeTickets = Int32Array.from({ length: capacity }, (_, ticket) => capacity - 1 - ticket);
  let freeCount = capacity;
  let eventHead = 0;
  const kinds: string[] = new Array(capacity).fill('');
  const sizes = new Float64Array(capacity);
  const immediates = new Float64Array(capacity);
  const counters: (Tally | undefined)[] = new Array(capacity).fill(undefined);
  const sources: (Region | null)[] = new Array(capacity).fill(null);
  const targets: (Peer | PeerGroup | null)[] = new Array(capacity).fill(null);

  /** Takes a ticket; there must be one available. */
  function begin(
    kind: string,
    bytes: number,
    options: { readonly immediate?: number | undefined; readonly counter?: Tally | undefined },
    source: Region | null,
    target: Peer | PeerGroup,
    requests: number,
  ): number {
    const ticket = freeTickets[--freeCount]!;
    remaining[ticket] = requests;
    kinds[ticket] = kind;
    sizes[ticket] = bytes;
    immediates[ticket] = options.immediate ?? -1;
    sources[ticket] = source;
    targets[ticket] = target;
    const counter = options.counter;
    counters[ticket] = counter;
    if (counter !== undefined) counter.posted++;
    if (source !== null) source.underway++;
    return ticket;
  }

  /** Tells of every operation that has ended since the last call; true when there was one. */
  function drain(): boolean {
    const tail = Atomics.load(control, controlWord.eventTail);
    if (tail === eventHead) return false;
    while (eventHead !== tail) {
      const at = (eventHead & (capacity - 1)) * eventWords;
      eventHead = (eventHead + 1) | 0;
      end(events[at]!, events[at + 1]!, events[at + 2]!);
    }
    return true;
  }

  /** Ends everything that is still under way, when the engine closes or breaks: whoever asked is told. */
  function endAll(error: Error): void {
    const free = new Set(freeTickets.subarray(0, freeCount));
    for (let ticket = 0; ticket < capacity; ticket++) {
      if (!free.has(ticket)) tell(ticket, error);
    }
  }

  function end(ticket: number, code: number, peer: number): void {
    const error = code === 0 ? null : failure(code, peer, describe(ticket), targets[ticket]!);
    if (error !== null && counters[ticket] === undefined) process.emitWarning(error);
    tell(ticket, error);
  }

  function tell(ticket: number, error: Error | null): void {
    const counter = counters[ticket];
    const source = sources[ticket]!;
    if (source !== null) source.underway--;
    counters[ticket] = undefined;
    sources[ticket] = null;
    freeTickets[freeCount++] = ticket;
    if (counter === undefined) return;
    if (error === null) counter.completed++;
    else {
      counter.failed++;
      counter.error ??= error;
    }
  }

  function describe(ticket: number): string {
    const target = targets[ticket]!;
    const bytes = sizes[ticket]!;
    const immediate = immediates[ticket]!;
    const size = bytes > 0 ? ` of ${bytes} bytes` : '';
    const to = target instanceof PeerGroup ? `${target.members.length} peers` : target.name;
    return `${kinds[ticket]}${size} to ${to}${immediate >= 0 ? ` (immediate ${immediate})` : ''}`;
  }

  return { available: () => freeCount > 0, underway: () => capacity - freeCount, begin, drain, endAll };
}
