/** Asks the cache for entries at the same time as its siblings; fails on any wrong answer. */
import { cached } from '../../../src/gpu/cuda/cache.js';

const folder = process.argv[2]!;
let made = 0;
for (let round = 0; round < 60; round++) {
  const entry = round % 20;
  const expected = new Uint8Array(20_000).fill(entry);
  const { bytes } = await cached(folder, `entry${entry}`, async () => {
    made++;
    return expected;
  });
  if (Buffer.compare(bytes, expected) !== 0) throw new Error(`entry ${entry} is wrong`);
}
console.log(made);
