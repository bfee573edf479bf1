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

  constructor(shared: SharedArrayBuffer) {
    this.#counts = new Int32Array(shared, 0, 2);
    this.#tags = new Int32Array(shared, 8);
    this.#mask = this.#tags.length - 1;
  }

  /** `room`: a power of two. */
  static allocate(room: number): SharedArrayBuffer {
    return new SharedArrayBuffer((2 + room) * 4);
  }

  add(tag: number): void {
    if (this.#waiting.length > 0 || !this.#put(tag)) this.#waiting.push(tag);
  }

  /** Adds those that have waited for room; true when there was some. */
  addWaiting(): boolean {
    let added = 0;
    while (added < this.#waiting.length && this.#put(this.#waiting[added]!)) added++;
    if (added > 0) this.#waiting.splice(0, added);
    return added > 0;
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
