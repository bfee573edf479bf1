/**
 * Work that stands between a send and its receive. Nobody else uses its memory, because its launches overlap with
 * those around it.
 */
import { type CallSite, callSite, type Memory, type Stream } from '../../gpu/index.js';
import { kernel, pointer } from '../../lang/index.js';
import type { World } from '../../net/world/index.js';

const params = { words: pointer('u32') };

/** Adds 1 to each word: two launches that are not ordered race. */
const count = kernel({ name: 'other_work', maxThreads: 32, params }, (g, { words }) => {
  g.awaitPrevious();
  g.releaseNext();
  g.store(words.at(g.threadIdx.x), g.load(words.at(g.threadIdx.x)) + 1);
});

export class OtherWork {
  readonly #words: Memory;
  readonly #site: CallSite<typeof params>;

  private constructor(words: Memory, site: CallSite<typeof params>) {
    this.#words = words;
    this.#site = site;
  }

  static async create({ device, rank }: World, stream: Stream): Promise<OtherWork> {
    const words = device.allocate(256, 'other work');
    stream.fill(words.address, 256, 0);
    const site = await callSite(device, count, { grid: 1, block: 32, programmatic: true, rank });
    site.set.words(words.address);
    return new OtherWork(words, site);
  }

  /** A copy, behind which early reads find all that came before, and a launch. */
  between(stream: Stream): void {
    const { address } = this.#words;
    stream.copy(address + 128, address + 192, 64);
    this.behind(stream);
  }

  behind(stream: Stream): void {
    this.#site.launch(stream);
  }

  free(): void {
    this.#words.free();
  }
}
