/** A small, fast generator of random numbers (sfc32): everything random in a simulated run comes from one seed. */
export class Random {
  private a: number;
  private b: number;
  private c: number;
  private counter = 1;

  constructor(seed: string) {
    // FNV-1a, twice with different starts, spreads near-equal seeds ('7', '8') over the whole state.
    let h = 0x811c9dc5;
    let k = 0x9747b28c;
    for (let i = 0; i < seed.length; i++) {
      h = Math.imul(h ^ seed.charCodeAt(i), 0x01000193);
      k = Math.imul(k ^ seed.charCodeAt(i), 0x85ebca6b);
    }
    this.a = h | 0;
    this.b = k | 0;
    this.c = (h ^ (k >>> 7)) | 0;
    for (let i = 0; i < 12; i++) this.next();
  }

  /** An integer in [0, 2^32). */
  next(): number {
    const t = (((this.a + this.b) | 0) + this.counter) | 0;
    this.counter = (this.counter + 1) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = (this.c << 21) | (this.c >>> 11);
    this.c = (this.c + t) | 0;
    return t >>> 0;
  }

  /** An integer in [0, bound). */
  below(bound: number): number {
    return Math.floor((this.next() / 2 ** 32) * bound);
  }

  /** A number in [0, 1). */
  fraction(): number {
    return this.next() / 2 ** 32;
  }
}
