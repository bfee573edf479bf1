/**
 * One rank of a world of processes, of which rank 1 is killed. A new process takes its place, with memory of its own; the others write
 * where its window was mapped before. The first that comes has another window, and is refused.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type HeddleError, RankLostError, RankMaskedError } from '../../../src/base/errors.js';
import { view } from '../../../src/base/native/index.js';
import { World } from '../../../src/net/world/index.js';

const bytes = 4096;
const again = process.argv[2] ?? process.env.HEDDLE_REJOIN;

async function run(): Promise<void> {
  const world = await World.join({ timeoutMs: 20_000, ...(again && { rejoin: again }) });
  const { device, rank, ranks } = world;
  const { own, bases } = await world.createWindow(again?.endsWith('start 2') ? bytes + 1 : bytes, 'window');
  const addresses = [...bases];
  const stream = device.createStream();
  const meet = async (value: number): Promise<void> => {
    for (const address of addresses) stream.fill(address + rank, 1, value + rank);
    await world.barrier('written');
    console.log(`found ${new Uint8Array(view(own.address, ranks)).join(' ')}`);
    await world.barrier('read');
  };
  if (again === undefined) {
    await meet(10);
    if (rank === 1) process.kill(process.pid, 'SIGKILL');
    await world.barrier('never').catch((error: unknown) => {
      if (!(error instanceof RankLostError)) throw error;
    });
    await world.mask();
    while (world.masked.length > 0) {
      await world.admit();
      await delay(5);
    }
  } else {
    try {
      await world.rejoin();
    } catch (error) {
      if (!(error instanceof RankMaskedError)) throw error;
      console.log(`refused: ${error.cause}`);
      process.exit(1);
    }
  }
  await meet(20);
  // What does not fit changes nothing.
  const handles = await world.allGather(own.handle, 'handles');
  const place = device.reserveWindow(2 ** 22, 'window');
  await place.map(handles[(rank + 1) % ranks]!).catch((error: HeddleError) => console.log(error.code));
  await meet(30);
  await world.dispose();
}

await run().catch((error) => console.log(`${error.name}: ${error.message}`));
