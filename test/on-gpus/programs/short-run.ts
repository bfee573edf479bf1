/**
 * A few small round trips on two GPUs, for tools that look at each access: see test/on-gpus/sanitize.sh. In one process, or
 * as a rank of a world of processes where a launcher started it.
 */
import { World } from '../../../src/net/world/index.js';
import { roundTripCases } from '../../suite/round-trip.js';

const few: readonly string[] = [
  'uneven and empty ranks, no weights, experts moved',
  'payloads of many lengths',
  'ids out of range',
  'pull, rows in three parts',
  'push, rows in three parts',
  'pull, f32 weighed by combine',
  'combine weighs, bf16 as e4m3',
  'f16 as e4m3, rows in three parts, holes',
  'a graph, replayed',
];

// Kernels are many times slower under such a tool, and so is loading them.
const timeoutMs = 120_000;
const cases = roundTripCases(2, { replays: 3, waitMs: timeoutMs }).filter(({ name }) => few.includes(name));
if (cases.length !== few.length) throw new Error('a case was renamed');

const joined = process.env.HEDDLE_RANK === undefined ? null : await World.join({ timeoutMs });
for (const { name, run } of cases) {
  const since = performance.now();
  if (joined !== null) await run(joined);
  else await World.local({ ranks: 2, device: 'cuda', timeoutMs }, run);
  if ((joined?.rank ?? 0) === 0) console.log(`ok: ${name} (${Math.round(performance.now() - since)} ms)`);
}
await joined?.dispose();
