/** What needs engines: two of this process, each the other's peer. */
import * as fabric from '../../src/net/fabric/index.js';
import * as worlds from '../../src/net/world/index.js';
import { type Call, call } from './call.js';
import type { PublicName } from './names.js';

export async function engines() {
  const options = {
    provider: 'tcp;ofi_rxm',
    thread: 'caller',
    timeoutMs: 200,
  } as const;
  const opened = [
    await fabric.TransferEngine.open(options),
    await fabric.TransferEngine.open(options),
  ] as const;
  const [mine, theirs] = opened;
  const peer = mine.addPeer(theirs.address, 'other');
  theirs.addPeer(mine.address, 'first');
  const region = mine.allocate(4096);
  const target = theirs.allocate(4096);
  const remote = mine.remote(peer, target.descriptor);
  const group = mine.group([remote]);
  const closed = mine.allocate(64);
  closed.close();
  return { opened, mine, theirs, peer, region, target, remote, group, closed };
}
export type Engines = Awaited<ReturnType<typeof engines>>;

export async function ofEngines({ mine, theirs, peer, region, target, remote, group }: Engines) {
  const counter = mine.counter();
  // A wait for more operations than were ever begun is right to go on.
  mine.write({ source: region, sourceOffset: 0, target: remote, targetOffset: 0, bytes: 8, counter });
  const alone = worlds.LocalCircle.create(1)[0]!;
  const connection = await worlds.connectFabric(alone, mine);
  const slices = { sourceOffsets: [0], targetOffsets: [0] };
  const how = { immediate: 1, counter };
  const immediate = mine.immediate(9);
  return {
    'TransferEngine.open': call(async (options) => (await fabric.TransferEngine.open(options)).close(), {
      ...{ provider: 'tcp;ofi_rxm', devices: ['lo'], rails: 1, shard: 'peer', thread: 'caller' },
      ...{ timeoutMs: 100, queue: 8, immediates: 4, gpuMemory: false },
    }),
    'TransferEngine.addPeer': call((a, b) => theirs.addPeer(a, b), new Uint8Array(mine.address), 'again'),
    'TransferEngine.losePeer': call((a) => theirs.losePeer(a), peer),
    'TransferEngine.removePeer': call((a) => theirs.removePeer(a), peer),
    'TransferEngine.hasRoomFor': call((a) => mine.hasRoomFor(a), peer),
    'TransferEngine.allocate': call((a) => mine.allocate(a).close(), 4096),
    'TransferEngine.register': call((a) => mine.register(a).close(), new Uint8Array(64)),
    'TransferEngine.registerGpu': call((a) => mine.registerGpu(a), { address: 0, bytes: 64, ordinal: 0 }),
    'TransferEngine.remote': call((a, b) => mine.remote(a, b), peer, target.descriptor),
    'TransferEngine.group': call((a) => mine.group(a), [remote]),
    'TransferEngine.immediate': call((a) => mine.immediate(a), 3),
    'TransferEngine.write': call((a) => mine.write(a), {
      ...{ source: region, sourceOffset: 0, target: remote, targetOffset: 0, bytes: 8, ...how },
    }),
    'TransferEngine.paged': call((a) => mine.paged(a), {
      ...{ source: region, target: remote, bytes: 8, ...slices, ...how },
    }),
    'TransferEngine.scatter': call((a) => mine.scatter(a), {
      ...{ source: region, group, bytes: [8], ...slices, ...how },
    }),
    'TransferEngine.barrier': call((a) => mine.barrier(a), { group, ...how }),
    'Counter.reached': call((a) => counter.reached(a), 1),
    'Counter.wait': call((a) => counter.wait(a), 1),
    'Counter.waitSync': call((a) => counter.waitSync(a), 1),
    'ImmediateCounter.take': call((a) => immediate.take(a), 1),
    'ImmediateCounter.wait': call((a, b) => immediate.wait(a, b), 0, { timeoutMs: 1, from: [peer] }),
    'ImmediateCounter.waitSync': call((a, b) => immediate.waitSync(a, b), 0, { timeoutMs: 1, from: [peer] }),
    connectFabric: call(async (a, b, c) => (await worlds.connectFabric(a, b, c)).close(), alone, mine, []),
    'FabricConnection.share': call((a) => connection.share(a), region),
    'FabricConnection.toRankLost': call((a) => connection.toRankLost(a), new Error('fuzz')),
  } satisfies Partial<Record<PublicName, Call>>;
}
