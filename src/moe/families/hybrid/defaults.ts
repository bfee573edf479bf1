/** How the kernels are spread where nobody measured. */
import { type Layer, sharing } from '../../layer/index.js';
import type { Place } from '../family.js';
import type { HybridTuning } from './knobs.js';

export function defaultTuning(
  layer: Layer,
  { kind, multiprocessors }: Pick<Place, 'kind' | 'multiprocessors'>,
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
  return {
    dispatch: { chunk, blocks, threads: 512 },
    combine: { blocks, threads: 256, parts },
  };
}
