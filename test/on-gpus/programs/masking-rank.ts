/** One rank of a world that leaves ranks out: it replays one graph, and goes on with it when a rank is killed in the middle of a round. */
import { RepeatRoundsError } from '../../../src/base/errors.js';
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
/** The round in which the rank falls, and the last. */
const [fallsIn, last] = [5, 25];

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
const expectedOf = (token: number, masked: readonly number[]): number => {
  const ids = routes.topkIds.subarray(token * topK, (token + 1) * topK);
  const owners = [...ids].map((id) => Math.floor(id / expertsOfRank));
  return new Set(owners.filter((owner) => !masked.includes(owner))).size * (1 + rank);
};
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
    const sums = await readBits(out, stream);
    for (const [i, sum] of sums.entries()) if (sum !== expectedOf(Math.floor(i / hidden), masked)) wrong++;
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
