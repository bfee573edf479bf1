/**
 * The process of rank 1 is killed in the middle of a round, or stands still (the first argument: 'stops'); the others leave its ranks out for two
 * rounds, and admit it again when it has come back. Then all of it happens once more.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { RankMaskedError, RepeatRoundsError } from '../../../../src/base/errors.js';
import { ExpertParallel, emptyTensor, readBits } from '../../../../src/moe/index.js';
import { reference } from '../../../../src/moe/layer/index.js';
import { World } from '../../../../src/net/world/index.js';
import {
  compareCombined,
  ExampleExperts,
  expectedRound,
  layerOf,
  makeSources,
  shapeOfRounds,
} from '../../../../src/verify/testing/index.js';

const stops = process.argv[2] === 'stops';
// The launcher asks a rank to end that the others have lost.
if (stops) process.on('SIGTERM', () => {});
const layer = { experts: 8, topK: 3, maxTokens: 4, hidden: 16, dtype: 'bf16' } as const;

await World.join({}, async (world) => {
  const { rank, ranks, device } = world;
  const shape = shapeOfRounds({ ...layer, ranks });
  const options = layerOf(shape, { onLoss: 'mask', waitMs: stops ? 6000 : 30_000 });
  const ep = await ExpertParallel.create(world, options);
  const stream = device.createStream();
  const experts = await ExampleExperts.create(world, ep, stream, { blocks: 2, threads: 32 });
  const out = emptyTensor(device, layer.dtype, [layer.maxTokens, layer.hidden]);
  let fell = 0;

  async function round(n: number): Promise<void> {
    const sources = makeSources(shape, layer.maxTokens, n);
    const { topkIds, topkWeights, payloads } = sources[rank]!;
    ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads: { x: payloads.x! } }, stream);
    if (n % 3 === 2 && rank === 1 && fell < n) {
      fell = n;
      process.kill(process.pid, stops ? 'SIGSTOP' : 'SIGKILL');
    }
    experts.run(stream);
    ep.combine(out, stream);
    await ep.synchronize(stream);
    // Rows are added up on each node first where messages go between nodes by rails.
    const nodes = ep.family === 'hybrid' ? world.topology.nodes : 1;
    const left = reference.without(shape, sources, world.masked);
    const expected = expectedRound(shape, left, true, nodes)[rank]!;
    const { different } = compareCombined(shape, rank, await readBits(out, stream), expected);
    console.log(`${rank}: round ${n} without ${world.masked}: ${different === 0 ? 'right' : 'wrong'}`);
  }

  // Where all are, those that have run on say to the others.
  const agree = async (n: number) =>
    Math.max(...(await world.allGather(Uint8Array.of(n), 'the round')).map(([m = 0]) => m));

  const pids = (await world.allGather(new Uint8Array(Uint32Array.of(process.pid).buffer), 'processes')).map(
    (bytes) => new Uint32Array(bytes.slice().buffer)[0]!,
  );
  let n = 1;
  if (world.out) {
    await world.rejoin();
    n = await agree(0);
  }
  for (; n <= 7; n++) {
    try {
      if (n % 3 === 2 && world.masked.length === 0) await world.barrier('the round before is done');
      // In the fourth and the seventh all are to be there again.
      while (n % 3 === 1 && world.masked.length > 0) {
        if ((await world.admit()).length > 0) await agree(n);
        else await delay(5);
      }
      await round(n);
      if (n % 3 === 0 && stops && rank === 0) process.kill(pids[1]!, 'SIGCONT');
    } catch (error) {
      if (error instanceof RankMaskedError) {
        await world.rejoin();
        n = (await agree(0)) - 1;
        continue;
      }
      if (!(error instanceof RepeatRoundsError)) throw error;
      n = error.round - 1;
    }
  }
  await world.barrier('all rounds are done');
});
