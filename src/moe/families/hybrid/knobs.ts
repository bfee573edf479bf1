/** Options of the hybrid kernels. The same on all ranks. */

import { type Layer, sharing } from '../../layer/index.js';
import type { PlanTarget } from '../family.js';
import { count, type KnobValues } from '../knobs.js';

const blocks = count('thread blocks of each half', [1, 65_536], (_tokens, _now, multiprocessors) => [
  16,
  32,
  Math.floor(multiprocessors / 2),
  // Receives have one more, which watches.
  multiprocessors - 1,
]);

/** In the order in which a search tries them. */
export const hybridKnobs = {
  dispatch: {
    chunk: count('tokens whose rows travel to a node as one message', [1, 32], (tokens) =>
      [1, 2, 4, 8, 16, 32].filter((chunk) => chunk <= tokens),
    ),
    blocks,
    threads: count('threads a block', [32, 1024], () => [256, 512, 1024], 32),
  },
  combine: {
    blocks,
    // With more threads the sums would not fit in registers.
    threads: count('threads a block', [32, 256], () => [64, 128, 256], 32),
    parts: count('pieces that a row is cut into, each a warp’s', [1, 1024], () => [1, 2, 4, 7, 14]),
  },
};

export type HybridTuning = KnobValues<typeof hybridKnobs>;

/** How the kernels are spread where nobody measured. */
export function defaultTuning(
  layer: Layer,
  { kind, multiprocessors }: Pick<PlanTarget, 'kind' | 'multiprocessors'>,
): HybridTuning {
  const { turns } = sharing(layer);
  if (kind === 'sim') {
    // Simulated threads cost time and simulated latency costs nothing.
    const launch = { blocks: Math.min(turns, 4), threads: 32 };
    return { dispatch: { ...launch, chunk: 4 }, combine: { ...launch, parts: 1 } };
  }
  // So many chunks that the first leaves early and all blocks have one, and so few that messages are long.
  const chunk = Math.max(1, Math.min(32, Math.floor(turns / 16)));
  const parts = turns <= 16 ? 14 : turns <= 256 ? 4 : 1;
  // Receives have one more, which watches.
  const blocks = Math.min(multiprocessors - 1, turns * 2);
  return { dispatch: { chunk, blocks, threads: 512 }, combine: { blocks, threads: 256, parts } };
}
