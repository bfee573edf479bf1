/** Numbers, rows and bytes from a seed: the same everywhere. */
import { requireInteger } from '../../base/errors.js';
import { Random } from '../../gpu/sim/index.js';
import {
  type Bits,
  bitsArray,
  type FloatDtype,
  floatDtypes,
  fromF32,
  requireDtype,
} from '../../moe/layer/index.js';

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

/** No test needs more. */
const mostElements = 2 ** 30;

/**
 * `count` random elements as the bits of a dtype: roughly normal around 0, |x| < 4. With `spread`, each is also
 * divided by a random power of two up to 2^spread: sums of such numbers round at every step, so a sum in the wrong
 * order shows.
 */
export function randomElements(dtype: FloatDtype, count: number, seed: number, spread = 0): Bits {
  requireDtype('dtype', dtype, floatDtypes);
  requireInteger('count', count, 0, mostElements);
  requireInteger('spread', spread, 0, 126);
  const draw = random(seed, 4);
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    const bits = draw.bits();
    // Four bytes added up are close to normal: mean 510, deviation 147.8.
    const sum = (bits & 255) + ((bits >>> 8) & 255) + ((bits >>> 16) & 255) + (bits >>> 24);
    values[i] = (sum - 510) / 128;
    if (spread > 0) values[i]! /= 2 ** draw.below(spread + 1);
  }
  return fromF32(dtype, values, bitsArray(dtype, count));
}

/** `count` random bytes: opaque payload rows. */
export function randomBytes(count: number, seed: number): Uint8Array {
  requireInteger('count', count, 0, mostElements);
  const draw = random(seed, 5);
  const words = new Uint32Array(Math.ceil(count / 4));
  for (let i = 0; i < words.length; i++) words[i] = draw.bits();
  return new Uint8Array(words.buffer, 0, count);
}
