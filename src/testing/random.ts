/**
 * Random numbers that are the same everywhere: integer arithmetic only, no `Math.random`, no transcendental
 * functions. The only generator of this room.
 */
import { requireInteger } from '../errors/index.js';

export interface Random {
  /** 32 random bits. */
  bits(): number;
  /** Uniform in [0, 1), a multiple of 2^-32. */
  uniform(): number;
  /** An integer from 0 to `n − 1`. */
  below(n: number): number;
}

/**
 * A generator (sfc32) for a seed and any number of further integers: `random(seed, rank)` gives each rank a stream
 * of its own.
 */
export function random(...seeds: readonly number[]): Random {
  let state = 0x9e3779b9;
  const mix = (): number => {
    // The finaliser of MurmurHash3: every seed bit reaches every state bit.
    state = (state + 0x9e3779b9) | 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
    return z ^ (z >>> 16);
  };
  for (const [i, seed] of seeds.entries()) {
    requireInteger(`seeds[${i}]`, seed, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
    state ^= seed | 0;
    state = mix() ^ Math.floor(seed / 2 ** 32);
  }
  let a = mix();
  let b = mix();
  let c = mix();
  let counter = 1;

  const bits = (): number => {
    const sum = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return sum >>> 0;
  };
  for (let i = 0; i < 12; i++) bits(); // sfc32 needs a dozen rounds until its seeds are spread
  const uniform = (): number => bits() / 2 ** 32;
  return { bits, uniform, below: (n) => Math.floor(uniform() * n) };
}
