// Ranks whose engines meet through their circle's rendezvous, write to each other, and lose rank 1.
import { type ProviderName, TransferEngine } from '../../../../src/net/fabric/index.js';
import { connectFabric } from '../../../../src/net/world/fabric.js';
import { ProcessCircle } from '../../../../src/net/world/process-circle.js';

const provider = process.argv[2] as ProviderName;
const slice = 10_000;

const circle = await ProcessCircle.join();
// Far longer than the test may take: whoever hears of the loss hears of it from the circle.
const engine = await TransferEngine.open({
  provider,
  devices: provider === 'shm' ? [] : ['lo'],
  timeoutMs: 600_000,
});
const fabric = await connectFabric(circle, engine);
const region = engine.allocate(2 * slice * circle.ranks);
const { remotes, others } = await fabric.share(region);

const bytes = new Uint8Array(region.buffer);
for (let to = 0; to < circle.ranks; to++) bytes.fill(10 * circle.rank + to + 1, to * slice, (to + 1) * slice);
const ranks = Array.from({ length: circle.ranks }, (_, rank) => rank).filter((rank) => rank !== circle.rank);
const counter = engine.counter();
engine.scatter({
  source: region,
  group: others!,
  sourceOffsets: ranks.map((to) => to * slice),
  targetOffsets: ranks.map(() => (circle.ranks + circle.rank) * slice),
  bytes: ranks.map(() => slice),
  immediate: 1,
  counter,
});
await engine.immediate(1).wait(ranks.length, { from: others!.peers });
await counter.wait();
const got = ranks.map((from) => {
  const at = (circle.ranks + from) * slice;
  return new Set(bytes.subarray(at, at + slice));
});
await circle.barrier('scattered');

if (circle.rank === 1) process.kill(process.pid, 'SIGKILL');
const victim = fabric.peers[1]!;
const error = await engine
  .immediate(2)
  .wait(1, { from: [victim] })
  .catch((reason) => fabric.toRankLost(reason) as Error & { code: string; ranks: number[] });
const again = engine.counter();
const other = remotes[2 - circle.rank]!;
engine.write({
  source: region,
  sourceOffset: 0,
  target: other,
  targetOffset: 0,
  bytes: 8,
  immediate: 3,
  counter: again,
});
await again.wait();
await engine.immediate(3).wait(1);
const { code, ranks: lost, cause } = error as { code: string; ranks: number[]; cause: Error };
console.log(
  JSON.stringify({
    rank: circle.rank,
    got: got.map((values) => [...values]),
    code,
    lost,
    cause: cause.message,
    peerLost: victim.lost,
  }),
);
fabric.close();
await engine.close();
await circle.dispose();
