/**
 * Random numbers that are the same everywhere: integer arithmetic only, no `Math.random`, no transcendental functions.
 * A small, fast generator (sfc32), and the only one; what it starts from is said by whoever makes one.
 */
export class Random {
  #counter = 1;
  #a: number;
  #b: number;
  #c: number;

  constructor(a: number, b: number, c: number) {
    this.#a = a;
    this.#b = b;
    this.#c = c;
    for (let i = 0; i < 12; i++) this.bits(); // sfc32 needs a dozen rounds until its seeds are spread
  }

  /** From a text: everything random in a simulated run comes from one. */
  static from(seed: string): Random {
    // FNV-1a, twice with different starts, spreads near-equal seeds ('7', '8') over the whole state.
    let h = 0x811c9dc5;
    let k = 0x9747b28c;
    for (let i = 0; i < seed.length; i++) {
      h = Math.imul(h ^ seed.charCodeAt(i), 0x01000193);
      k = Math.imul(k ^ seed.charCodeAt(i), 0x85ebca6b);
    }
    return new Random(h | 0, k | 0, (h ^ (k >>> 7)) | 0);
  }

  bits(): number {
    const sum = (((this.#a + this.#b) | 0) + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (this.#c << 21) | (this.#c >>> 11);
    this.#c = (this.#c + sum) | 0;
    return sum >>> 0;
  }

  /** Uniform in [0, 1), a multiple of 2^-32. */
  uniform(): number {
    return this.bits() / 2 ** 32;
  }

  /** An integer from 0 to `n − 1`. */
  below(n: number): number {
    return Math.floor(this.uniform() * n);
  }
}
