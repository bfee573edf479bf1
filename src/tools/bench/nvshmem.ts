/**
 * The cost of the same rows with NVSHMEM's own all-to-all: padded to all tokens for every rank, as it takes no counts. Its
 * rows lie packed already, and nobody adds up what comes back.
 */
import { CudaDevice, CudaStream } from '../../gpu/cuda/index.js';
import type { Spread } from './statistics.js';
import type { Timing } from './timing.js';
import { rowBytesOf, type Workload } from './workload.js';

/** The time of a dispatch and then a combine. Every rank calls it. Null where the world's ranks are not part of NVSHMEM. */
export async function timeNvshmem(
  timing: Timing,
  of: Workload,
  tokens: number,
  rounds: number,
): Promise<Spread | null> {
  const { world, stream } = timing;
  const { device, ranks } = world;
  if (!(device instanceof CudaDevice && stream instanceof CudaStream) || device.nvshmem === null) return null;
  const heap = device.nvshmem;
  const row = rowBytesOf(of);
  const most = ranks * tokens * Math.max(row.dispatch, row.combine);
  const from = await world.createSymmetricWindow(most, 'what NVSHMEM sends');
  const to = await world.createSymmetricWindow(most, 'what NVSHMEM receives');
  const steps = (['dispatch', 'combine'] as const).map(
    (phase) => () => heap.alltoall(to.own.address, from.own.address, tokens * row[phase], stream.handle),
  );
  const time = await timing.time(rounds, steps);
  await world.barrier('end of NVSHMEM’s all-to-all');
  to.close();
  from.close();
  return time;
}
