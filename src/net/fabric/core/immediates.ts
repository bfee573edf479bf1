import { UnavailableError } from '../../../base/errors.js';

/**
 * How many writes have landed, by immediate. The thread that polls libfabric adds; any thread that holds the
 * same shared memory reads. An immediate that arrives before anybody asked for it makes its own entry, so a
 * sender may be early; counts only grow (modulo 2^32), so arrivals may come in any order.
 *
 * It is an open-addressed hash table without removal: an entry is claimed by one compare-and-exchange, gets its
 * tag, and is then published. A reader that meets a claimed entry waits the few instructions until it is.
 */
export class ImmediateTable {
  readonly #state: Int32Array;
  readonly #tags: Int32Array;
  readonly #arrived: Int32Array;
  readonly #mask: number;

  constructor(shared: SharedArrayBuffer) {
    const capacity = shared.byteLength / bytesPerEntry;
    this.#state = new Int32Array(shared, 0, capacity);
    this.#tags = new Int32Array(shared, capacity * 4, capacity);
    this.#arrived = new Int32Array(shared, capacity * 8, capacity);
    this.#mask = capacity - 1;
  }

  /** Shared memory for at least `tags` different immediates. */
  static allocate(tags: number): SharedArrayBuffer {
    // At most half of the table is used, so that a search is short.
    return new SharedArrayBuffer(2 ** Math.ceil(Math.log2(tags * 2)) * bytesPerEntry);
  }

  /** The entry of a tag (as a signed 32-bit number), made if there is none; -1 when the table is full. */
  find(tag: number): number {
    // Neighbouring tags are the common case: multiplying by the golden ratio keeps them apart.
    let at = (Math.imul(tag, 0x9e3779b1) >>> 7) & this.#mask;
    for (let probes = 0; probes <= this.#mask; ) {
      const state = Atomics.load(this.#state, at);
      if (state === published) {
        if (this.#tags[at] === tag) return at;
        at = (at + 1) & this.#mask;
        probes++;
      } else if (state === free && Atomics.compareExchange(this.#state, at, free, claimed) === free) {
        this.#tags[at] = tag;
        Atomics.store(this.#state, at, published);
        return at;
      }
    }
    return -1;
  }

  /** Records one arrival; false when the table is full and the arrival could not be counted. */
  add(tag: number): boolean {
    const at = this.find(tag);
    if (at < 0) return false;
    Atomics.add(this.#arrived, at, 1);
    return true;
  }

  /** The arrivals at an entry so far, modulo 2^32. */
  count(at: number): number {
    return Atomics.load(this.#arrived, at);
  }
}

/**
 * The immediates that have landed, one after the other, for a caller who looks at each of them. The core adds; the caller
 * takes. While there is no room for more, the core looks for no completions.
 */
export class ImmediateQueue {
  /** How many were added and how many taken, modulo 2^32. */
  readonly #counts: Int32Array;
  readonly #tags: Int32Array;
  readonly #mask: number;

  constructor(shared: SharedArrayBuffer) {
    this.#counts = new Int32Array(shared, 0, 2);
    this.#tags = new Int32Array(shared, 8);
    this.#mask = this.#tags.length - 1;
  }

  static allocate(room: number): SharedArrayBuffer {
    return new SharedArrayBuffer((2 + room) * 4);
  }

  fits(n: number): boolean {
    return ((this.#counts[0]! - Atomics.load(this.#counts, 1)) | 0) + n <= this.#tags.length;
  }

  add(tag: number): void {
    const added = this.#counts[0]!;
    this.#tags[added & this.#mask] = tag;
    Atomics.store(this.#counts, 0, (added + 1) | 0);
  }

  /** Removes the oldest immediate and returns its tag; -1 where there is none. */
  take(): number {
    const taken = this.#counts[1]!;
    if (Atomics.load(this.#counts, 0) === taken) return -1;
    const tag = this.#tags[taken & this.#mask]!;
    Atomics.store(this.#counts, 1, (taken + 1) | 0);
    return tag;
  }
}

/** The meaning of a full table for a caller that asks for one more tag. */
export function tableFull(): UnavailableError {
  return new UnavailableError(
    'More different immediates are in use than this engine can count',
    'Reuse tags (counters only grow, so a tag serves any number of rounds) or open the engine with more `immediates`',
  );
}

const bytesPerEntry = 12;
const free = 0;
const claimed = 1;
const published = 2;
