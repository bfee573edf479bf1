import { eventWords, type Shared, word } from '../core/shared.js';
import type { Peer, PeerGroup, Region } from './handles.js';

/** How many operations were posted, and how they have ended. */
export interface Tally {
  posted: number;
  completed: number;
  failed: number;
  /** The first error. */
  error: Error | null;
}

/**
 * The operations under way, one a ticket. Everything that is told about an operation when it ends is kept in
 * arrays by ticket, so that beginning one allocates nothing.
 */
export class Operations {
  /** How many requests of each operation have not ended. The caller sets it before it publishes the command; from then on only the core writes it. */
  readonly remaining: Int32Array;
  readonly #control: Int32Array;
  readonly #events: Int32Array;
  readonly #mask: number;
  readonly #freeTickets: Int32Array;
  #freeCount: number;
  #eventHead = 0;
  readonly #kinds: string[];
  readonly #bytes: Float64Array;
  readonly #immediates: Float64Array;
  readonly #counters: (Tally | undefined)[];
  readonly #sources: (Region | null)[];
  readonly #peers: (Peer | null)[];
  readonly #groups: (PeerGroup | null)[];

  /** Makes the error of an operation from the core's error number and the peer that it is about. */
  readonly #failure: (code: number, peer: number, operation: string, group: PeerGroup | null) => Error;

  constructor(
    shared: Shared,
    failure: (code: number, peer: number, operation: string, group: PeerGroup | null) => Error,
  ) {
    this.#failure = failure;
    this.remaining = new Int32Array(shared.remaining);
    this.#control = new Int32Array(shared.control);
    this.#events = new Int32Array(shared.events);
    const capacity = this.remaining.length;
    this.#mask = capacity - 1;
    this.#freeTickets = Int32Array.from({ length: capacity }, (_, ticket) => capacity - 1 - ticket);
    this.#freeCount = capacity;
    this.#kinds = new Array(capacity).fill('');
    this.#bytes = new Float64Array(capacity);
    this.#immediates = new Float64Array(capacity);
    this.#counters = new Array(capacity).fill(undefined);
    this.#sources = new Array(capacity).fill(null);
    this.#peers = new Array(capacity).fill(null);
    this.#groups = new Array(capacity).fill(null);
  }

  get available(): boolean {
    return this.#freeCount > 0;
  }

  get underway(): number {
    return this.remaining.length - this.#freeCount;
  }

  /** Takes a ticket; there must be one available. */
  begin(
    kind: string,
    bytes: number,
    options: { readonly immediate?: number | undefined; readonly counter?: Tally | undefined },
    source: Region | null,
    peer: Peer | null,
    group: PeerGroup | null,
    requests: number,
  ): number {
    const ticket = this.#freeTickets[--this.#freeCount]!;
    this.remaining[ticket] = requests;
    this.#kinds[ticket] = kind;
    this.#bytes[ticket] = bytes;
    this.#immediates[ticket] = options.immediate ?? -1;
    this.#sources[ticket] = source;
    this.#peers[ticket] = peer;
    this.#groups[ticket] = group;
    const counter = options.counter;
    this.#counters[ticket] = counter;
    if (counter !== undefined) counter.posted++;
    if (source !== null) source.underway++;
    return ticket;
  }

  /** Tells of every operation that has ended since the last call; true when there was one. */
  drain(): boolean {
    const tail = Atomics.load(this.#control, word.eventTail);
    if (tail === this.#eventHead) return false;
    while (this.#eventHead !== tail) {
      const at = (this.#eventHead & this.#mask) * eventWords;
      this.#eventHead = (this.#eventHead + 1) | 0;
      this.#end(this.#events[at]!, this.#events[at + 1]!, this.#events[at + 2]!);
    }
    return true;
  }

  /** Ends everything that is still under way, when the engine closes or breaks: whoever asked is told. */
  endAll(error: Error): void {
    const free = new Set(this.#freeTickets.subarray(0, this.#freeCount));
    for (let ticket = 0; ticket < this.remaining.length; ticket++) {
      if (!free.has(ticket)) this.#tell(ticket, error);
    }
  }

  #end(ticket: number, code: number, peer: number): void {
    const error =
      code === 0 ? null : this.#failure(code, peer, this.#describe(ticket), this.#groups[ticket]!);
    if (error !== null && this.#counters[ticket] === undefined) process.emitWarning(error);
    this.#tell(ticket, error);
  }

  #tell(ticket: number, error: Error | null): void {
    const counter = this.#counters[ticket];
    const source = this.#sources[ticket]!;
    if (source !== null) source.underway--;
    this.#counters[ticket] = undefined;
    this.#sources[ticket] = null;
    this.#freeTickets[this.#freeCount++] = ticket;
    if (counter === undefined) return;
    if (error === null) counter.completed++;
    else {
      counter.failed++;
      counter.error ??= error;
    }
  }

  #describe(ticket: number): string {
    const peer = this.#peers[ticket];
    const group = this.#groups[ticket];
    const bytes = this.#bytes[ticket]!;
    const immediate = this.#immediates[ticket]!;
    const size = bytes > 0 ? ` of ${bytes} bytes` : '';
    const to = peer ? ` to ${peer.name}` : group ? ` to ${group.members.length} peers` : '';
    return `${this.#kinds[ticket]}${size}${to}${immediate >= 0 ? ` (immediate ${immediate})` : ''}`;
  }
}
