/**
 * One rank of a world of which one is killed in the middle of a round. The others replay the graph that they captured at first, also
 * when a new process has taken its place, whose windows are mapped where the old ones were.
 */
import { RepeatRoundsError } from '../../../src/base/errors.js';
import { driver } from '../../../src/gpu/cuda/driver.js';
import { countGpus } from '../../../src/gpu/cuda/index.js';
import { World } from '../../../src/net/world/index.js';
import { returnedRows } from './returned-rows.js';

const [family, victim, waitMs] = [process.argv[2]!, ...process.argv.slice(3).map(Number)] as [
  string,
  number,
  number,
];
/** The round in which the rank falls, how many the others run without it at least, and how many there are when the new one is there. */
const [fallsIn, roundsWithout, roundsAfter] = [5, 5, 20];
const rankHere = Number(process.env.HEDDLE_RANK);

// Ranks that share a GPU take turns on it. Slowly, but that is no matter here: each says that it has one of its own.
if (countGpus() === 1) {
  const { out } = driver();
  const ofItsOwn = () => {
    out.bytes.fill(rankHere + 1, 0, 16);
    return 0;
  };
  Object.assign(driver(), { cuDeviceGetUuid: ofItsOwn });
}

const world = await World.join({ timeoutMs: 20_000, lossTimeoutMs: 3_000 });
const { rank } = world;
const { ep, stream, captured, wrongSums } = await returnedRows(world, family, waitMs);
const isNew = world.out;

/** Where all are, those that have run on say to the others. */
const agree = async (n: number): Promise<number> => {
  const all = await world.allGather(new Uint8Array(Uint32Array.of(n).buffer), 'the round');
  return Math.max(...all.map((bytes) => new Uint32Array(bytes.slice().buffer)[0] ?? 0));
};

let n = 1;
let last = Number.POSITIVE_INFINITY;
/** How long the others' next round was late, and how long their rounds take with the new process. */
let late = 0;
const times: number[] = [];
if (isNew) {
  await world.rejoin();
  n = await agree(0);
  last = n + roundsAfter;
}
// Captured once.
const graph = captured();

let [wrong, rounds, without] = [0, 0, 0];
while (n < last) {
  const { masked } = world;
  if (without >= roundsWithout && masked.length > 0) {
    const began = performance.now();
    if ((await world.admit()).length > 0) {
      n = await agree(n);
      late = performance.now() - began;
      last = n + roundsAfter;
      continue;
    }
  }
  const begun = performance.now();
  graph.launch(stream);
  if (rank === victim && !isNew && n === fallsIn) process.kill(process.pid, 'SIGKILL');
  try {
    await ep.synchronize(stream);
    if (last < Number.POSITIVE_INFINITY) times.push(performance.now() - begun);
    wrong += await wrongSums(masked);
    rounds++;
    if (masked.length > 0) without++;
    n++;
  } catch (error) {
    if (!(error instanceof RepeatRoundsError)) throw error;
    n = error.round;
  }
}
await world.barrier('all rounds are done');
const round = times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
console.log(JSON.stringify({ rank, isNew, masked: world.masked, wrong, rounds, without, late, round }));
await ep.dispose();
await world.dispose();
