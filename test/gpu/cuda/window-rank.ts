/**
 * One rank of a world of processes: leaves a byte in every window of its node, and prints what it finds in its own.
 * The argument says how many nodes the ranks are; without it they are found.
 */
import { view } from '../../../src/base/native/index.js';
import { World } from '../../../src/net/world/index.js';

async function run(): Promise<void> {
  const [, , nodes] = process.argv;
  const world = await World.join({ timeoutMs: 20_000, ...(nodes && { nodes: Number(nodes) }) });
  try {
    const { own, bases, close } = await world.createWindow(4096, 'window');
    const stream = world.device.createStream();
    for (const base of bases) stream.fill(base + world.rank, 1, 10 + world.rank);
    await world.barrier('written');
    console.log(`found ${new Uint8Array(view(own.address, world.ranks)).join(' ')}`);
    await world.barrier('read');
    close();
  } finally {
    await world.dispose();
  }
}

await run().catch((error) => console.log(`${error.name}: ${error.message}`));
