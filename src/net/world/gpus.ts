/** Which GPU a rank of a world of processes takes. */
import { UnavailableError } from '../../base/errors.js';

/** The number of a rank's GPU among the `visible` ones. A process that was shown a single one takes that. */
export function ordinalFor(rank: number, localRank: number | undefined, visible: number): number {
  const ordinal = visible === 1 ? 0 : (localRank ?? rank);
  if (ordinal < visible) return ordinal;
  throw new UnavailableError(
    `Rank ${rank} needs GPU ${ordinal}, but this process sees ${visible}`,
    'Start fewer ranks on this machine, make more GPUs visible (CUDA_VISIBLE_DEVICES), or simulate them: `heddle run --device sim`',
  );
}

/** Refuses ranks that took the same GPU: kernels that wait for each other would take turns on it. */
export function requireOwnGpus(uuids: readonly string[]): void {
  for (const [rank, uuid] of uuids.entries()) {
    const first = uuids.indexOf(uuid);
    if (first === rank) continue;
    throw new UnavailableError(
      `Ranks ${first} and ${rank} would share a GPU (${uuid})`,
      'Start one rank a GPU; where a launcher shows each process one GPU, it must show each another ' +
        '(CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)',
    );
  }
}
