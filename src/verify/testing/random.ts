import { requireInteger } from '../../base/errors.js';
import { Random } from '../../gpu/sim/index.js';

export type { Random } from '../../gpu/sim/index.js';

/** A generator for a seed and any number of further integers: `random(seed, rank)` gives each rank a stream of its own. */
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
  return new Random(mix(), mix(), mix());
}
