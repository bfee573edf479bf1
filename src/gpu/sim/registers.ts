/** Registers of a block that its warps give and take (setmaxnreg): whether they add up. */

/** Of a multiprocessor. */
const registerFile = 65_536;
/** The registers that a thread may have, and their step. */
const mostOfThread = 256;
const step = 8;

export class WarpRegisters {
  /** A thread's, by warp. */
  readonly #has: Int32Array;
  readonly #begins: number;
  /** Where somebody took some last. */
  #taken: number | null = null;

  constructor(maxThreads: number, threads: number) {
    this.#begins = Math.min(mostOfThread, step * Math.floor(registerFile / maxThreads / step));
    this.#has = new Int32Array(Math.ceil(threads / 32)).fill(this.#begins);
  }

  /** The mistake in it, if there is one: that there are enough shows only in the end, for others may give theirs later. */
  keep(warp: number, count: number, takes: boolean, site: number): string | null {
    const before = this.#has[warp]!;
    this.#has[warp] = count;
    if (takes) this.#taken = site;
    if (takes ? count >= before : count <= before) return null;
    return takes
      ? `a thread has ${before} registers here and cannot take ${count}: g.group.giveRegisters is for fewer`
      : `a thread has ${before} registers here and cannot give all but ${count}: g.group.takeRegisters is for more`;
  }

  /** Whether somebody waits for registers that nobody has given. */
  lack(): { readonly message: string; readonly site: number } | null {
    const all = this.#begins * this.#has.length;
    const wanted = this.#has.reduce((sum, count) => sum + count, 0);
    if (wanted <= all || this.#taken === null) return null;
    const message =
      `the warps of this block want ${32 * wanted} registers, but it has ${32 * all} (${this.#begins} a thread), so some wait ` +
      'for ever: take fewer, or give more';
    return { message, site: this.#taken };
  }
}
