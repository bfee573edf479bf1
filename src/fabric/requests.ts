import { type Address, allocate, type NativeMemory } from '../native/index.js';

/**
 * The requests to one peer: C structures that are laid out and linked once, when the peer is added, so that a
 * write only fills in what differs. Each has room for a struct fi_msg_rma (a write), its iovec, its fi_rma_iov
 * and a struct fi_msg (a message), which share the iovec.
 */
export class RequestQueue {
  /** The C structures, `requestWords` words each. */
  readonly words: Uint32Array;
  /** Addresses of the structures, as already boxed numbers: passing one to C allocates nothing. */
  readonly writes: Address[];
  readonly sends: Address[];
  /** The same memory, for the words that only this side reads: they lie beside what C reads, in one cache line. */
  readonly state: Int32Array;
  /** What each request reads from; for the owner of the queue. */
  readonly region: unknown[];
  /** How many requests wait for room in the provider. */
  waiting = 0;

  private readonly memory: NativeMemory;
  /** The first of the free requests, which are linked through `next`; -1 when there is none. */
  private firstFree = 0;
  private busyCount = 0;
  private readonly line: Int32Array;
  private lineHead = 0;

  constructor(
    contextHigh: number,
    readonly capacity: number,
  ) {
    this.memory = allocate(capacity * requestWords * 4);
    this.words = new Uint32Array(this.memory.buffer);
    this.state = new Int32Array(this.memory.buffer);
    this.region = new Array(capacity).fill(undefined);
    this.line = new Int32Array(capacity);
    // A leading null keeps the array from being stored as raw doubles, which would be boxed anew at each use.
    this.writes = boxed(capacity, (slot) => this.memory.address + slot * requestWords * 4);
    this.sends = boxed(capacity, (slot) => this.memory.address + (slot * requestWords + sendWord) * 4);
    for (let slot = 0; slot < capacity; slot++) {
      this.state[slot * requestWords + request.next] = slot + 1 < capacity ? slot + 1 : -1;
      this.link(slot, contextHigh);
    }
  }

  /** Takes a free request. There is one: the front counts what is under way to each peer. */
  take(ticket: number, rail: number, deadline: number): number {
    const { state } = this;
    const slot = this.firstFree;
    const at = slot * requestWords;
    this.firstFree = state[at + request.next]!;
    this.busyCount++;
    state[at + request.busy] = 1;
    state[at + request.ticket] = ticket;
    state[at + request.rail] = rail;
    state[at + request.deadline] = deadline;
    return slot;
  }

  /** Gives a request back. Its next use has another context, so a late completion of this use is recognised. */
  put(slot: number): void {
    const { state } = this;
    const at = slot * requestWords;
    state[at + request.busy] = 0;
    state[at + request.posted] = 0;
    this.region[slot] = undefined;
    const context = (state[at + request.contextLow]! + slotMask + 1) | 0;
    state[at + request.contextLow] = context;
    state[at + request.sendContextLow] = context;
    state[at + request.next] = this.firstFree;
    this.firstFree = slot;
    this.busyCount--;
  }

  /** The lower half of the completion context: the slot and how often it was used. */
  context(slot: number): number {
    return this.state[slot * requestWords + request.contextLow]!;
  }

  isBusy(slot: number): boolean {
    return this.state[slot * requestWords + request.busy] === 1;
  }

  /** Whether libfabric has it; otherwise it waits here. */
  isPosted(slot: number): boolean {
    return this.state[slot * requestWords + request.posted] === 1;
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
      const deadline = this.state[slot * requestWords + request.deadline]!;
      if (this.isBusy(slot) && ((deadline - now) | 0) < 0) return true;
    }
    return false;
  }

  free(): void {
    this.memory.free();
  }

  /** Writes everything that stays the same for the life of the peer. */
  private link(slot: number, contextHigh: number): void {
    const base = this.memory.address + slot * requestWords * 4;
    const at = slot * requestWords;
    const pointer = (word: number, target: number) => {
      this.words[at + word] = target;
      this.words[at + word + 1] = target / two32;
    };
    const local = base + request.localLow * 4;
    const descriptor = base + request.descriptorLow * 4;
    pointer(0, local); // fi_msg_rma.msg_iov
    pointer(2, descriptor); // .desc
    pointer(4, 1); // .iov_count
    pointer(8, base + request.remoteLow * 4); // .rma_iov
    pointer(10, 1); // .rma_iov_count
    pointer(sendWord, local); // fi_msg.msg_iov
    pointer(sendWord + 2, descriptor); // .desc
    pointer(sendWord + 4, 1); // .iov_count
    for (const [low, high] of [
      [request.contextLow, request.contextHigh],
      [request.sendContextLow, request.sendContextHigh],
    ] as const) {
      this.words[at + low] = slot;
      this.words[at + high] = contextHigh;
    }
  }
}

export const two32 = 2 ** 32;
/** A slot number takes this part of a context; the rest counts its uses. */
export const slotMask = 0xfff;
/** Words of 32 bits of one request: three cache lines. */
export const requestWords = 48;
/** Where its struct fi_msg begins. */
const sendWord = 28;

/** Words of a request that differ from use to use; storing a number into one keeps its lower 32 bits. */
export const request = {
  addressLow: 6,
  addressHigh: 7,
  contextLow: 12,
  contextHigh: 13,
  immediate: 14,
  localLow: 16,
  localHigh: 17,
  localBytesLow: 18,
  localBytesHigh: 19,
  remoteLow: 20,
  remoteHigh: 21,
  remoteBytesLow: 22,
  remoteBytesHigh: 23,
  keyLow: 24,
  keyHigh: 25,
  descriptorLow: 26,
  descriptorHigh: 27,
  sendAddressLow: 34,
  sendAddressHigh: 35,
  sendContextLow: 36,
  sendContextHigh: 37,
  // Not C's: whether it is taken, whether libfabric has it, and what for.
  busy: 40,
  posted: 41,
  rail: 42,
  flags: 43,
  ticket: 44,
  deadline: 45,
  next: 46,
} as const;

function boxed(length: number, value: (index: number) => number): number[] {
  const array: unknown[] = [null];
  for (let index = 0; index < length; index++) array[index] = value(index);
  return array as number[];
}
