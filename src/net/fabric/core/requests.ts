import { type Address, allocate, type NativeMemory } from '../../../base/native/index.js';

/**
 * The requests of an engine, and the one C structure that describes them to libfabric. libfabric reads that only
 * during the call that posts it, so there is one, laid out and linked once: a write fills in what differs. It stays
 * in the nearest cache, and so does what is kept of each request, which is half a cache line. A request that
 * libfabric had no room for is parked until it has.
 */
export class Requests {
  /** The structure: storing a number into a word keeps its lower 32 bits. */
  readonly words: Int32Array;
  readonly structure: Address;
  /** The record of each request, `kept.words` words each. */
  state = new Int32Array(0);

  readonly #memory: NativeMemory;
  #parked = new Int32Array(0);
  /** The first of the free requests, which are linked through `next`; -1 when there is none. */
  #firstFree = -1;
  #capacity = 0;
  #promised = 0;
  #busy = 0;

  constructor() {
    this.#memory = allocate(structureWords * 4, 64);
    this.words = new Int32Array(this.#memory.buffer);
    this.structure = this.#memory.address;
    const long = (word: number, value: number) => {
      this.words[word] = value;
      this.words[word + 1] = value / two32;
    };
    long(0, this.#memory.address + field.localLow * 4); // fi_msg_rma.msg_iov
    long(2, this.#memory.address + field.descriptorLow * 4); // .desc
    long(4, 1); // .iov_count
    long(8, this.#memory.address + field.remoteLow * 4); // .rma_iov
    long(10, 1); // .rma_iov_count
  }

  /** Makes sure that `count` more can be under way; less again when it is negative. */
  promise(count: number): void {
    this.#promised += count;
    if (this.#promised <= this.#capacity) return;
    const first = this.#capacity;
    this.#capacity = Math.max(this.#promised, 2 * first);
    this.state = grown(this.state, this.#capacity * kept.words);
    this.#parked = grown(this.#parked, this.#capacity * parkedWords);
    for (let slot = this.#capacity - 1; slot >= first; slot--) {
      this.state[slot * kept.words + kept.next] = this.#firstFree;
      this.#firstFree = slot;
    }
  }

  /** Takes a free request. There is one: the caller counts what is under way to each peer. */
  take(lane: { readonly index: number }, ticket: number, region: number, deadline: number): number {
    const { state } = this;
    const slot = this.#firstFree;
    const at = slot * kept.words;
    this.#firstFree = state[at + kept.next]!;
    this.#busy++;
    state[at + kept.phase] = phase.taken;
    state[at + kept.ticket] = ticket;
    state[at + kept.region] = region;
    state[at + kept.lane] = lane.index;
    state[at + kept.deadline] = deadline;
    return slot;
  }

  /** Gives a request back. Its next use has another number, so a late completion of this use is recognised. */
  put(slot: number): void {
    const { state } = this;
    const at = slot * kept.words;
    state[at + kept.phase] = phase.free;
    state[at + kept.use] = (state[at + kept.use]! + 1) | 0;
    state[at + kept.next] = this.#firstFree;
    this.#firstFree = slot;
    this.#busy--;
  }

  /** Whether the request of this slot is still with libfabric, and the same as when `use` was counted: slots are used again. */
  holds(slot: number, use: number): boolean {
    const at = slot * kept.words;
    return this.state[at + kept.use] === use && this.state[at + kept.phase] === phase.posted;
  }

  /** The slot of a request whose deadline is before `now` (both in milliseconds, modulo 2^32); -1 where there is none. */
  overdue(now: number): number {
    const { state } = this;
    if (this.#busy === 0) return -1;
    for (let slot = 0; slot < this.#capacity; slot++) {
      const at = slot * kept.words;
      if (state[at + kept.phase] !== phase.free && ((state[at + kept.deadline]! - now) | 0) < 0) return slot;
    }
    return -1;
  }

  underway(lane: number): number[] {
    const slots: number[] = [];
    for (let slot = 0; slot < this.#capacity; slot++) {
      const at = slot * kept.words;
      if (this.state[at + kept.phase] !== phase.free && this.state[at + kept.lane] === lane) slots.push(slot);
    }
    return slots;
  }

  /** Keeps what the structure says of a request. */
  park(slot: number, flags: number): void {
    const { words } = this;
    const parked = this.#parked;
    const at = slot * parkedWords;
    for (let i = 0; i < variableWords; i++) parked[at + i] = words[firstVariable + i]!;
    parked[at + variableWords] = flags;
  }

  /** Makes the structure say it again; returns the flags. */
  unpark(slot: number): number {
    const { words } = this;
    const parked = this.#parked;
    const at = slot * parkedWords;
    for (let i = 0; i < variableWords; i++) words[firstVariable + i] = parked[at + i]!;
    return parked[at + variableWords]!;
  }

  free(): void {
    this.#memory.free();
  }
}

export const two32 = 2 ** 32;

/** Words of 32 bits of the structure: a struct fi_msg_rma, its iovec, its fi_rma_iov and its descriptor. */
export const field = {
  addressLow: 6,
  addressHigh: 7,
  /** The completion context: which use of the request, and the request's number + 1. */
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
} as const;
const structureWords = 28;
/** The words from here to the end differ from request to request. */
const firstVariable = field.addressLow;
const variableWords = structureWords - firstVariable;
const parkedWords = variableWords + 1;

/** The record of a request. `next` links the free ones, and those that wait in a lane's line. */
export const kept = {
  phase: 0,
  use: 1,
  ticket: 2,
  region: 3,
  lane: 4,
  deadline: 5,
  next: 6,
  words: 8,
} as const;

/** Where a request stands: free, taken but not posted, or in libfabric's hands. */
export const phase = { free: 0, taken: 1, posted: 2 } as const;

function grown(array: Int32Array, length: number): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(length);
  larger.set(array);
  return larger;
}
