/** The physical limits, measured in the same run and the same way: stores, loads, the flag barrier. */

import { callSite } from '../../gpu/index.js';
import { loadCeilingKernel, storeCeilingKernel, transferLaunch } from '../../verify/kernels/index.js';
import type { Spread } from './statistics.js';
import type { Timing } from './timing.js';

/** Meetings in one kernel when the flag barrier is measured. */
const meetings = 500;

export type Ceilings = Awaited<ReturnType<typeof createCeilings>>;

/** `mostBytes` is the most that a GPU will be asked to send (or fetch) in one round. Every rank calls it. */
export async function createCeilings(timing: Timing, mostBytes: number) {
  const { world } = timing;
  const { device, ranks, rank } = world;
  const { blocks, threads } = transferLaunch;
  const capacity = vectorsPerPeer(mostBytes, ranks);
  const kernel = storeCeilingKernel(ranks, capacity);
  const shape = { grid: blocks, block: threads, rank };
  const [stores, loads] = await Promise.all([
    callSite(device, kernel, shape),
    callSite(device, loadCeilingKernel(ranks, capacity), shape),
  ]);
  const window = await world.createWindow(kernel.params.win.layout.bytes, 'ceiling transfers');
  const sink = device.allocate(4 * blocks * threads, 'ceiling loads');
  const sites = { stores, loads };
  for (const { set } of [stores, loads]) set.win(window);
  loads.set.sink(sink.address);
  return {
    /** The time in which every rank moves `bytes` in all to (or from) its peers, all ranks at once. */
    async transfers(kind: 'stores' | 'loads', bytes: number, rounds: number): Promise<Spread> {
      const vectors = vectorsPerPeer(bytes, ranks);
      const site = sites[kind];
      site.set.vectors(vectors);
      const runs = Math.ceil(vectors / threads) * Math.max(1, ranks - 1);
      site.setGrid(Math.min(blocks, runs));
      return timing.time(rounds, [() => site.launch(timing.stream)]);
    },
    barrier: () => timing.timed(meetings, () => timing.enqueueBarrier(meetings)),
    async dispose() {
      await world.barrier('end of ceilings');
      sink.free();
      window.close();
    },
  };
}

/** Rows go to all peers alike. */
function vectorsPerPeer(bytes: number, ranks: number): number {
  return Math.max(1, Math.ceil(bytes / Math.max(1, ranks - 1) / 16));
}
