/**
 * Work that stands between a send and its receive. Nobody else uses its memory, because its launches overlap with
 * those around it.
 */
import { callSite, type Stream } from '../../gpu/index.js';
import { kernel, pointer } from '../../lang/index.js';
import type { World } from '../../net/world/index.js';

/** Adds 1 to each word: two launches that are not ordered race. */
const count = kernel(
  { name: 'other_work', maxThreads: 32, params: { words: pointer('u32') } },
  (g, { words }) => {
    g.awaitPrevious();
    g.releaseNext();
    g.store(words.at(g.threadIdx.x), g.load(words.at(g.threadIdx.x)) + 1);
  },
);

export async function createOtherWork({ device, rank }: World, stream: Stream) {
  const memory = device.allocate(256, 'other work');
  const { address } = memory;
  stream.fill(address, 256, 0);
  const site = await callSite(device, count, { grid: 1, block: 32, programmatic: true, rank });
  site.set.words(address);
  const behind = (on: Stream): void => site.launch(on);
  return {
    behind,
    /** A copy, behind which early reads find all that came before, and a launch. */
    between(on: Stream): void {
      on.copy(address + 128, address + 192, 64);
      behind(on);
    },
    free: () => memory.free(),
  };
}
