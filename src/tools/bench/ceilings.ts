/** The physical limits, measured in the same run and the same way: stores, loads, the flag barrier. */

import type { Launcher, Memory } from '../../gpu/index.js';
import type { SharedWindow, World } from '../../net/world/index.js';
import {
  loadCeilingKernel,
  storeCeilingKernel,
  transferLaunch,
  transferWindow,
} from '../../verify/kernels/index.js';
import type { Timing } from './timing.js';

/** Meetings in one kernel when the flag barrier is measured. */
const meetings = 500;

export class Ceilings {
  readonly #world: World;
  readonly #timing: Timing;
  readonly #window: SharedWindow;
  readonly #sink: Memory;
  readonly #kernels: Readonly<Record<'stores' | 'loads', Launcher>>;

  private constructor(
    world: World,
    timing: Timing,
    window: SharedWindow,
    sink: Memory,
    kernels: Readonly<Record<'stores' | 'loads', Launcher>>,
  ) {
    this.#world = world;
    this.#timing = timing;
    this.#window = window;
    this.#sink = sink;
    this.#kernels = kernels;
  }

  /** `mostBytes` is the most that a GPU will be asked to send (or fetch) in one round. Every rank calls it. */
  static async create(timing: Timing, mostBytes: number): Promise<Ceilings> {
    const { world } = timing;
    const { device, ranks, rank } = world;
    const capacity = vectorsPerPeer(mostBytes, ranks);
    const layout = transferWindow(ranks, capacity);
    const [stores, loads] = await Promise.all([
      device.load(storeCeilingKernel(ranks, capacity, layout).ir()),
      device.load(loadCeilingKernel(ranks, capacity, layout).ir()),
    ]);
    const window = await world.createWindow(layout.bytes, 'ceiling transfers');
    const sink = device.allocate(4 * transferLaunch.blocks * transferLaunch.threads, 'ceiling loads');
    const shape = { grid: transferLaunch.blocks, block: transferLaunch.threads, rank };
    const kernels = { stores: stores.launcher(shape), loads: loads.launcher(shape) };
    for (const launcher of Object.values(kernels)) launcher.setWindow('win', window);
    kernels.loads.set('sink', sink.address);
    return new Ceilings(world, timing, window, sink, kernels);
  }

  /** Microseconds that every rank needs to move `bytes` to (or from) its peers together, all at once. */
  async transfers(kind: 'stores' | 'loads', bytes: number, rounds: number): Promise<number[]> {
    const vectors = vectorsPerPeer(bytes, this.#world.ranks);
    const launcher = this.#kernels[kind];
    launcher.set('vectors', vectors);
    const { blocks, threads } = transferLaunch;
    const runs = Math.ceil(vectors / threads) * Math.max(1, this.#world.ranks - 1);
    launcher.setGrid(Math.min(blocks, runs));
    const graph = await this.#timing.capture(rounds, [() => launcher.launch(this.#timing.stream)]);
    const times = await this.#timing.replay(graph, rounds);
    graph.dispose();
    return times;
  }

  /** Microseconds of one meeting of all ranks, among many in one kernel. */
  async barrier(): Promise<number[]> {
    return this.#timing.timed(meetings, () => this.#timing.enqueueBarrier(meetings));
  }

  async dispose(): Promise<void> {
    await this.#world.barrier('end of ceilings');
    this.#sink.free();
    this.#window.close();
  }
}

/** Rows go to all peers alike. */
function vectorsPerPeer(bytes: number, ranks: number): number {
  return Math.max(1, Math.ceil(bytes / Math.max(1, ranks - 1) / 16));
}
