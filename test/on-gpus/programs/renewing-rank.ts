/** One rank of a world in which one is killed in the middle of a round; the others make the world anew, and rounds in it. */
import { RankLostError } from '../../../src/base/errors.js';
import { ExpertParallel, emptyTensor, readBits, row, tensorFrom } from '../../../src/moe/index.js';
import { World } from '../../../src/net/world/index.js';
import {
  expectedRound,
  makeRoutes,
  makeSources,
  runRounds,
  shapeOfRounds,
} from '../../../src/verify/testing/index.js';

const [victim, waitMs] = [Number(process.argv[2]), Number(process.argv[3])];
const layer = { experts: 24, topK: 4, maxTokens: 64, hidden: 512, dtype: 'bf16' } as const;

const world = await World.join({ timeoutMs: 20_000, lossTimeoutMs: 3_000 });
const { device } = world;
const stream = device.createStream();
const weights = tensorFrom(device, stream, [1, 2, 3, world.rank], 'f32', [4]);
const ep = await ExpertParallel.create(world, {
  ...{ experts: layer.experts, topK: layer.topK, maxTokens: layer.maxTokens, waitMs },
  payloads: { x: row('bf16', layer.hidden) },
  output: row('bf16', layer.hidden),
});
const { topkIds, topkWeights } = makeRoutes(ep.shape, world.rank, layer.maxTokens, 3);
const x = new Uint16Array(layer.maxTokens * layer.hidden).fill(0x3f80);
const out = emptyTensor(device, 'bf16', [layer.maxTokens, layer.hidden]);
ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
await ep.synchronize(stream);
await world.barrier('a dispatch is done');
if (world.rank === victim) process.kill(process.pid, 'SIGKILL');
try {
  ep.combine(out, stream);
  await ep.synchronize(stream);
  for (;;) await world.barrier('another round');
} catch (error) {
  if (!(error instanceof RankLostError)) throw error;
}
const begun = performance.now();
const next = await world.renew();
const ms = performance.now() - begun;

const shape = shapeOfRounds({ ...layer, ranks: next.ranks });
const rounds = [1, 2, 3].map((seed) => makeSources(shape, layer.maxTokens, seed));
const results = await runRounds(next, shape, rounds);
const same = rounds.every((sources, n) => {
  const expected = expectedRound(shape, sources)[next.rank]!;
  return results.out[n]!.every((value, i) => value === expected[i]);
});
const [a, b, c, d] = await readBits(weights, stream);
const kept = a === 1 && b === 2 && c === 3 && d === world.rank;
console.log(JSON.stringify({ rank: next.rank, was: world.rank, same, kept, ms }));
await next.dispose();
