/** Registers of a block that its warps give and take (setmaxnreg): whether they add up. */

const registerFile = 65_536;
/** The registers that a thread begins with at most, and their step: 255, which ptxas makes 248 where some are moved. */
const mostOfThread = 248;
const step = 8;
const groupThreads = 128;

export class WarpRegisters {
  /** A thread's, by warp. */
  readonly #has: Int32Array;
  readonly #begins: number;
  /** How often each thread gave or took. */
  readonly #times: Int32Array;
  /** Where somebody took some last, and where anybody moved any. */
  #taken: number | null = null;
  #moved = 0;

  constructor(maxThreads: number, threads: number) {
    this.#begins = Math.min(mostOfThread, step * Math.floor(registerFile / maxThreads / step));
    this.#has = new Int32Array(Math.ceil(threads / 32)).fill(this.#begins);
    this.#times = new Int32Array(threads);
  }

  /** The mistake in it, if there is one: that there are enough shows only in the end, for others may give theirs later. */
  keep(thread: number, count: number, takes: boolean, site: number): string | null {
    const warp = thread >>> 5;
    this.#times[thread]!++;
    this.#moved = site;
    const before = this.#has[warp]!;
    this.#has[warp] = count;
    if (takes) this.#taken = site;
    if (takes ? count >= before : count <= before) return null;
    return takes
      ? `a thread has ${before} registers here and cannot take ${count}: g.group.giveRegisters is for fewer`
      : `a thread has ${before} registers here and cannot give all but ${count}: g.group.takeRegisters is for more`;
  }

  /** In the end: whether warps of a group have done different things, or somebody waits for registers that nobody has given. */
  lack(): { readonly message: string; readonly site: number } | null {
    for (let first = 0; first < this.#times.length; first += groupThreads) {
      const same = (all: Int32Array, from: number, to: number): boolean =>
        all.subarray(from, to).every((one) => one === all[from]);
      const alike =
        same(this.#times, first, first + groupThreads) &&
        same(this.#has, first >>> 5, (first + groupThreads) >>> 5);
      if (!alike)
        return {
          message: `the threads from ${first} on are a warp group, and not all ${groupThreads} have given or taken the same registers: all do it together`,
          site: this.#moved,
        };
    }
    const all = this.#begins * this.#has.length;
    const wanted = this.#has.reduce((sum, count) => sum + count, 0);
    if (wanted <= all || this.#taken === null) return null;
    const message =
      `the warps of this block want ${32 * wanted} registers, but it has ${32 * all} (${this.#begins} a thread), so some wait ` +
      'for ever: take fewer, or give more';
    return { message, site: this.#taken };
  }
}
