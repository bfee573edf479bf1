/** A few round trips on two GPUs in one process, for tools that look at each access: see test/gpu/sanitize.sh. */
import { World } from '../../../src/world/index.js';
import { roundTripCases } from '../../suite/round-trip.js';

const few =
  /^(bf16|two payloads|rows of 77|uneven|ids out|no weights, counts|pull, rows|push, rows|a graph of)/;
for (const { name, run } of roundTripCases(2, { replays: 3 }).filter(({ name }) => few.test(name))) {
  await World.local({ ranks: 2, device: 'cuda' }, run);
  console.log(`ok: ${name}`);
}
