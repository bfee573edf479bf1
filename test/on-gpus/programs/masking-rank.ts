/** One rank of a world that leaves ranks out: it replays one graph, and goes on with it when a rank is killed in the middle of a round. */
import { RankLostError, RepeatRoundsError } from '../../../src/base/errors.js';
import { ExpertParallel, emptyTensor, readBits, row, tensorFrom } from '../../../src/moe/index.js';
import { World } from '../../../src/net/world/index.js';
import { makeRoutes } from '../../../src/verify/testing/index.js';

const [family, victim, waitMs, diesAfterMs] = [process.argv[2]!, ...process.argv.slice(3, 6).map(Number)] as [
  string,
  number,
  number,
  number,
];
const [tokens, hidden, topK, expertsOfRank] = [64, 512, 4, 4];
/** Rounds that count, behind those that were begun with the rank that falls. */
const more = 20;

const world = await World.join({ timeoutMs: 20_000, lossTimeoutMs: 3_000 });
const { device, rank } = world;
const ep = await ExpertParallel.create(world, {
  ...{ experts: expertsOfRank * world.ranks, topK, maxTokens: tokens, family, waitMs, onLoss: 'mask' },
  payloads: { x: row('f32', hidden) },
  output: row('f32', hidden),
});
const stream = device.createStream();
const routes = makeRoutes(ep.shape, rank, tokens, 7);
const inputs = {
  topkIds: tensorFrom(device, stream, routes.topkIds, 'i32', [tokens, topK]),
  topkWeights: tensorFrom(device, stream, routes.topkWeights, 'f32', [tokens, topK]),
  payloads: {
    x: tensorFrom(device, stream, new Float32Array(tokens * hidden).fill(1 + rank), 'f32', [tokens, hidden]),
  },
};
const out = emptyTensor(device, 'f32', [tokens, hidden]);
stream.beginCapture();
const { output, payloads } = ep.dispatch(inputs, stream);
stream.copy(output.data, payloads.x.data, output.bytes);
ep.combine(out, stream);
const graph = stream.endCapture();

/** Every owner that is not left out gives the row back as it is. */
const expectedOf = (token: number): number => {
  const ids = routes.topkIds.subarray(token * topK, (token + 1) * topK);
  const owners = [...ids].map((id) => Math.floor(id / expertsOfRank));
  return new Set(owners.filter((owner) => !world.masked.includes(owner))).size * (1 + rank);
};
let wrong = 0;
const replay = async (): Promise<void> => {
  graph.launch(stream);
  await ep.synchronize(stream);
  const sums = await readBits(out, stream);
  for (const [i, sum] of sums.entries()) if (sum !== expectedOf(Math.floor(i / hidden))) wrong++;
};

await replay();
await world.barrier('a round is done');
if (rank === victim) setTimeout(() => process.kill(process.pid, 'SIGKILL'), diesAfterMs);
/** How long the round took in which the rank was missed, and the longest behind it. */
let [missed, longest] = [0, 0];
for (let left = more; left > 0; ) {
  const begun = performance.now();
  try {
    await replay();
    if (world.masked.length === 0) continue;
    longest = Math.max(longest, performance.now() - begun);
    left--;
  } catch (error) {
    // A call that hears of the loss before a kernel has missed the rank: `synchronize` says which rounds count.
    const told = error instanceof RankLostError ? await ep.synchronize(stream).catch((told) => told) : error;
    if (!(told instanceof RepeatRoundsError)) throw told;
    missed = performance.now() - begun;
    left = more;
  }
}
console.log(JSON.stringify({ rank, masked: world.masked, wrong, missed, longest }));
await ep.dispose();
await world.dispose();
