import { type Address, allocate, type NativeMemory } from '../native/index.js';
import type { Endpoint, U64 } from './endpoint.js';
import { layOut, phase, request, requestWords, sendRequest, sendWord, slotMask } from './requests.js';

/** Where writes to a region of a peer go on one rail: the lane, and what the peer told of the region. */
export interface Target {
  readonly lane: Lane;
  readonly base: number;
  /** Two halves of the key, as signed numbers: those are stored in the object itself. */
  readonly keyLow: number;
  readonly keyHigh: number;
}

/**
 * The way to one peer over one rail: the endpoint, the requests, and the line of those that libfabric had no room
 * for. The requests are C structures that are laid out and linked once, when the peer is added, so that a write
 * only fills in what differs.
 */
export class Lane {
  /** Set with its peer. */
  lost = false;
  /** How many requests wait for room in the provider. */
  waiting = 0;
  /** The requests, `requestWords` words each. */
  readonly words: Int32Array;
  /** Where an immediate without data lands: eight bytes that nobody reads. */
  mailbox!: Target;

  /** Addresses of the C structures, as already boxed numbers: passing one to C allocates nothing. */
  private readonly writes: Address[];
  private readonly sends: Address[];
  private readonly memory: NativeMemory;
  /** The first of the free requests, which are linked through `next`; -1 when there is none. */
  private firstFree = 0;
  private busyCount = 0;
  private readonly line: Int32Array;
  private lineHead = 0;

  constructor(
    /** Among all lanes of the engine; completions come back with it. */
    readonly index: number,
    /** The peer's number. */
    readonly peer: number,
    readonly rail: number,
    readonly endpoint: Endpoint,
    /** libfabric's handle of the peer in that endpoint. */
    readonly handle: U64,
    readonly capacity: number,
  ) {
    // Not on page boundaries: the first requests of all lanes would compete for the same lines of the cache.
    this.memory = allocate(capacity * requestWords * 4, 64);
    const { address } = this.memory;
    this.words = new Int32Array(this.memory.buffer);
    this.line = new Int32Array(capacity);
    this.writes = boxed(capacity, (slot) => address + slot * requestWords * 4);
    this.sends = boxed(capacity, (slot) => address + (slot * requestWords + sendWord) * 4);
    for (let slot = 0; slot < capacity; slot++) {
      layOut(this.words, address, slot, index + 1, handle);
      this.words[slot * requestWords + request.next] = slot + 1 < capacity ? slot + 1 : -1;
    }
  }

  /** Takes a free request. There is one: the front counts what is under way to each peer. */
  take(ticket: number, region: number, deadline: number): number {
    const { words } = this;
    const slot = this.firstFree;
    const at = slot * requestWords;
    this.firstFree = words[at + request.next]!;
    this.busyCount++;
    words[at + request.phase] = phase.taken;
    words[at + request.ticket] = ticket;
    words[at + request.region] = region;
    words[at + request.deadline] = deadline;
    return slot;
  }

  /** Gives a request back. Its next use has another context, so a late completion of this use is recognised. */
  put(slot: number): void {
    const { words } = this;
    const at = slot * requestWords;
    words[at + request.phase] = phase.free;
    const context = (words[at + request.contextLow]! + slotMask + 1) | 0;
    words[at + request.contextLow] = context;
    words[at + request.sendContextLow] = context;
    words[at + request.next] = this.firstFree;
    this.firstFree = slot;
    this.busyCount--;
  }

  /** Hands a request to libfabric; returns its answer, 0 or a negative error number. */
  post(slot: number): number {
    const { words, endpoint } = this;
    const at = slot * requestWords;
    const flags = words[at + request.flags]!;
    const status =
      flags & sendRequest
        ? endpoint.sendMessage(endpoint.endpoint, this.sends[slot]!, flags & ~sendRequest)
        : endpoint.writeMessage(endpoint.endpoint, this.writes[slot]!, flags);
    if (status === 0) words[at + request.phase] = phase.posted;
    return status;
  }

  /** Whether libfabric has the request of this context, and that use of it. */
  holds(context: number): boolean {
    const at = (context & slotMask) * requestWords;
    return this.words[at + request.contextLow] === context && this.words[at + request.phase] === phase.posted;
  }

  /** The lower half of the completion context: the slot and how often it was used. */
  context(slot: number): number {
    return this.words[slot * requestWords + request.contextLow]!;
  }

  phase(slot: number): number {
    return this.words[slot * requestWords + request.phase]!;
  }

  defer(slot: number): void {
    this.line[(this.lineHead + this.waiting) % this.capacity] = slot;
    this.waiting++;
  }

  firstWaiting(): number {
    return this.line[this.lineHead]!;
  }

  shift(): void {
    this.lineHead = (this.lineHead + 1) % this.capacity;
    this.waiting--;
  }

  clearWaiting(): void {
    this.waiting = 0;
  }

  /** Whether any request under way was due before `now` (both in milliseconds, compared modulo 2^32). */
  overdue(now: number): boolean {
    if (this.busyCount === 0) return false;
    for (let slot = 0; slot < this.capacity; slot++) {
      const deadline = this.words[slot * requestWords + request.deadline]!;
      if (this.phase(slot) !== phase.free && ((deadline - now) | 0) < 0) return true;
    }
    return false;
  }

  free(): void {
    this.memory.free();
  }
}

function boxed(length: number, value: (index: number) => number): number[] {
  // A leading null keeps the array from being stored as raw doubles, which would be boxed anew at each use.
  const array: unknown[] = [null];
  for (let index = 0; index < length; index++) array[index] = value(index);
  return array as number[];
}
