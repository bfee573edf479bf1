/** One rank of a world that leaves ranks out: it replays one graph, and goes on with it when a rank is killed in the middle of a round. */
import { RepeatRoundsError } from '../../../src/base/errors.js';
import { World } from '../../../src/net/world/index.js';
import { returnedRows } from './returned-rows.js';

const [family, victim, waitMs, diesAfterMs] = [process.argv[2]!, ...process.argv.slice(3, 6).map(Number)] as [
  string,
  number,
  number,
  number,
];
/** The round in which the rank falls, and the last. */
const [fallsIn, last] = [5, 25];

const world = await World.join({ timeoutMs: 20_000, lossTimeoutMs: 3_000 });
const { rank } = world;
const { ep, stream, captured, wrongSums } = await returnedRows(world, family, waitMs);
const graph = captured();

let wrong = 0;
/** How long the round took in which the rank was missed, and the longest behind it. */
let [missed, longest] = [0, 0];
for (let n = 1; n <= last; ) {
  const { masked } = world;
  const begun = performance.now();
  graph.launch(stream);
  if (rank === victim && n === fallsIn) {
    while (performance.now() < begun + diesAfterMs);
    process.kill(process.pid, 'SIGKILL');
  }
  try {
    await ep.synchronize(stream);
    wrong += await wrongSums(masked);
    if (masked.length > 0) longest = Math.max(longest, performance.now() - begun);
    n++;
  } catch (error) {
    if (!(error instanceof RepeatRoundsError)) throw error;
    missed = performance.now() - begun;
    n = error.round;
  }
}
console.log(JSON.stringify({ rank, masked: world.masked, wrong, missed, longest }));
await ep.dispose();
await world.dispose();
