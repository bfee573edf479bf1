/**
 * One rank of a world in which one falls, at the point that the arguments say. Survivors print what their calls threw
 * and after how long, free everything and end well.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { HeddleError, RankLostError } from '../../../src/base/errors.js';
import { World } from '../../../src/net/world/index.js';
import { placedRounds } from '../rounds.js';

const [point, victim, waitMs] = [process.argv[2]!, Number(process.argv[3]), Number(process.argv[4])];
// Several pieces of rows for each block, so that waits would add up if a block waited for each of them.
const [tokens, hidden] = [64, 512];
const spread = { threads: 64, parts: 1, inFlight: 4, teams: 1 };
const tuning = {
  dispatch: { ...spread, blocks: 16 },
  combine: { ...spread, blocks: 8, way: point.endsWith('pull') ? 'pull' : 'push', ahead: 2 },
} as const;
const how = point.endsWith('nvshmem')
  ? ({ family: 'portable', transport: 'nvshmem' } as const)
  : ({ family: 'one-sided', tuning } as const);

const world = await World.join({ timeoutMs: 20_000, lossTimeoutMs: 3_000 });
const layer = { experts: 8 * world.ranks, topK: 4, maxTokens: tokens, waitMs, ...how };
const x = new Uint16Array(tokens * hidden).fill(0x3f80);
const { ep, stream, inputs, out } = await placedRounds(world, layer, x, 3);
const dispatch = () => {
  const received = ep.dispatch(inputs, stream);
  stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
};
const round = () => {
  dispatch();
  ep.combine(out, stream);
};

stream.beginCapture();
round();
round();
const graph = stream.endCapture();
round();
round();
await ep.synchronize(stream);
await world.barrier('two rounds are done');

const falls = world.rank === victim;
/** For points inside a kernel: comes so late that the kernels of all others wait for it when the victim dies. */
const late = world.rank === (victim + 1) % world.ranks;
const die = () => process.kill(process.pid, 'SIGKILL');
/** Long enough for the others to enqueue what they do next, so that they do not hear of it before. */
const dieSoon = async () => {
  await delay(50);
  die();
};
const dieInside = async () => {
  setTimeout(die, 50);
  await stream.synchronize();
  throw new Error('the victim waited for nobody');
};
const hearOfIt = () => world.barrier('between rounds').catch(() => {});

let since = performance.now();
try {
  switch (point.split(',')[0]) {
    case 'before dispatch':
      if (falls) await dieSoon();
      round();
      break;
    case 'in dispatch':
      if (late) await hearOfIt();
      since = performance.now();
      dispatch();
      if (falls) await dieInside();
      ep.combine(out, stream);
      break;
    case 'before combine':
      dispatch();
      await ep.synchronize(stream);
      await world.barrier('dispatched');
      if (falls) await dieSoon();
      since = performance.now();
      ep.combine(out, stream);
      break;
    case 'in combine':
      dispatch();
      await ep.synchronize(stream);
      await world.barrier('dispatched');
      if (late) await hearOfIt();
      since = performance.now();
      ep.combine(out, stream);
      if (falls) await dieInside();
      break;
    case 'between rounds':
      if (falls) die();
      await hearOfIt();
      since = performance.now();
      round();
      break;
    case 'in a graph':
      // Nobody waits for anybody's host: the victim dies somewhere in a round, with many more enqueued.
      for (let replay = 0; replay < 100; replay++) graph.launch(stream);
      if (falls) die();
      since = performance.now();
      for (let replay = 0; replay < 100; replay++) graph.launch(stream);
      break;
    case 'stopped':
      if (falls) process.kill(process.pid, 'SIGSTOP');
      round();
      break;
    default:
      throw new Error(`no such point: ${point}`);
  }
  await ep.synchronize(stream);
  throw new Error('nothing was noticed');
} catch (error) {
  const ms = Math.round(performance.now() - since);
  const lost = error instanceof RankLostError ? error : null;
  await ep.dispose();
  await world.dispose();
  console.log(
    JSON.stringify({
      rank: world.rank,
      code: error instanceof HeddleError ? error.code : String(error),
      ranks: lost?.ranks,
      operation: lost?.operation,
      epoch: lost?.epoch,
      ms,
      freedAfterMs: Math.round(performance.now() - since),
    }),
  );
}
