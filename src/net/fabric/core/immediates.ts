/**
 * The immediates that have landed, one after the other. The core adds; the caller takes. Those that find no room wait in the
 * core until there is some, so that a caller that does not look holds up nobody.
 */
export class ImmediateQueue {
  /** How many were added and how many taken, modulo 2^32. */
  readonly #counts: Int32Array;
  readonly #tags: Int32Array;
  readonly #mask: number;
  readonly #waiting: number[] = [];
  /** How many of those have been added. */
  #done = 0;

  constructor(shared: SharedArrayBuffer) {
    this.#counts = new Int32Array(shared, 0, 2);
    this.#tags = new Int32Array(shared, 8);
    this.#mask = this.#tags.length - 1;
  }

  /** `room`: a power of two. */
  static allocate(room: number): SharedArrayBuffer {
    return new SharedArrayBuffer((2 + room) * 4);
  }

  /** Returns how many the caller can take more than before: none where it has to wait. */
  add(tag: number): number {
    if (this.#waiting.length === 0 && this.#put(tag)) return 1;
    this.#waiting.push(tag);
    return 0;
  }

  /** Adds those that have waited, as far as there is room. Returns how many. */
  addWaiting(): number {
    if (this.#waiting.length === 0) return 0;
    const before = this.#done;
    while (this.#done < this.#waiting.length && this.#put(this.#waiting[this.#done]!)) this.#done++;
    const added = this.#done - before;
    if (this.#done === this.#waiting.length) this.#waiting.length = this.#done = 0;
    return added;
  }

  /** Removes the oldest immediate and returns its tag, as a signed number; null where there is none. */
  take(): number | null {
    const taken = this.#counts[1]!;
    if (Atomics.load(this.#counts, 0) === taken) return null;
    const tag = this.#tags[taken & this.#mask]!;
    Atomics.store(this.#counts, 1, (taken + 1) | 0);
    return tag;
  }

  #put(tag: number): boolean {
    const added = this.#counts[0]!;
    if (((added - Atomics.load(this.#counts, 1)) | 0) === this.#tags.length) return false;
    this.#tags[added & this.#mask] = tag;
    Atomics.store(this.#counts, 0, (added + 1) | 0);
    return true;
  }
}
