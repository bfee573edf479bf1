/** How long the ranks' kernels waited for each other. */
import type { Stream } from '../../gpu/index.js';
import type { World } from '../../net/world/index.js';
import type { LoadedPlan } from './loaded-plan.js';

/**
 * [rank][peer]: microseconds that a rank's kernels waited for a peer: the mean of the last 64 rounds (of each two in flight), 0 before the
 * first. In dispatch, until all that the peer's first block sends had come; in combine, until the peer's experts were done.
 */
export interface Waits {
  readonly dispatch: readonly (readonly number[])[];
  readonly combine: readonly (readonly number[])[];
}

/** Every bit of it is set where no round has been. */
const nothing = 2n ** 64n - 1n;

/** Reads the waits of all ranks. Every rank calls it. */
export async function readWaits(world: World, rounds: readonly LoadedPlan[], stream: Stream): Promise<Waits> {
  const { ranks } = world;
  const noted = Array.from({ length: 2 * ranks }, (): number[] => []);
  for (const loaded of rounds) {
    const { data, bytes } = loaded.tensor(loaded.plan.waits!);
    const words = new BigUint64Array((await stream.copyOut(data, bytes)).slice().buffer);
    for (const [i, nanoseconds] of words.entries()) {
      const phase = Math.floor((2 * i) / words.length);
      if (nanoseconds !== nothing) noted[phase * ranks + (i % ranks)]!.push(Number(nanoseconds) / 1000);
    }
  }
  const means = noted.map((times) => times.reduce((sum, time) => sum + time, 0) / Math.max(1, times.length));
  const mine = new Uint8Array(Float64Array.from(means).buffer);
  const all = await world.allGather(mine, 'gathering waits');
  const phase = (n: number) =>
    all.map((bytes) => [...new Float64Array(bytes.slice().buffer).subarray(n * ranks, (n + 1) * ranks)]);
  return { dispatch: phase(0), combine: phase(1) };
}

/** The rank that the others waited for most, in both phases together, and for how long, of all of them together. */
export function latestRank({ dispatch, combine }: Waits): { readonly rank: number; readonly waited: number } {
  const waited = dispatch.map((_, peer) =>
    [...dispatch, ...combine].reduce(
      (sum, row, i) => sum + (i % dispatch.length === peer ? 0 : row[peer]!),
      0,
    ),
  );
  const most = Math.max(...waited);
  return { rank: waited.indexOf(most), waited: most };
}
