/** Kernels of two ranks that send each other numbers by their proxies: the same on real GPUs and on simulated ones. */
import { kernel, pointer } from '../../../../src/lang/index.js';
import type { World } from '../../../../src/net/world/index.js';
import { words } from './relay.js';

/** Sends a number and adds the one that comes. */
const send = kernel(
  {
    name: 'send',
    params: { words: pointer('u32'), epoch: 'u32', number: 'u32', sum: pointer('u32'), limit: 'u32' },
  },
  (g, { words, epoch, number, sum, limit }) => {
    g.store(words.at(4), number);
    g.store(words, epoch, { order: 'release', scope: 'sys' });
    g.awaitEpoch(words.at(1), epoch, { order: 'acquire', scope: 'sys', limit });
    g.store(sum, g.load(sum) + g.load(words.at(8)));
  },
);

/** One rank's part: the sum of what came in so many rounds. Rank r sends 10 · round + r. */
export async function exchange(world: World, module: URL, rounds: number): Promise<number> {
  const { device, rank } = world;
  const memory = device.allocateMapped(words.bytes, 'words');
  const proxy = await world.startProxy({ module, name: 'relay', data: {}, memory });
  try {
    const stream = device.createStream();
    const sum = device.allocate(4, 'sum');
    stream.fill(sum.address, 4, 0);
    const launcher = (await device.load(send.ir())).launcher({
      grid: 1,
      block: 1,
      rank: world.topology.localRank,
    });
    launcher.set('words', memory.address);
    launcher.set('sum', sum.address);
    launcher.set('limit', 10_000_000);
    for (let epoch = 1; epoch <= rounds; epoch++) {
      launcher.set('epoch', epoch);
      launcher.set('number', 10 * epoch + rank);
      launcher.launch(stream);
      await stream.synchronize();
      // One place for each direction: the next round may use them when both have read.
      await world.barrier();
    }
    if (proxy.error !== null) throw proxy.error;
    const result = await stream.copyOut(sum.address, 4);
    return new DataView(result.buffer, result.byteOffset).getUint32(0, true);
  } finally {
    await proxy.stop();
  }
}
