/** The kernels that only measure a machine. */
import { limits } from '../../../moe/layer/index.js';
import { layerParameters } from '../layer.js';
import { entry, number, type RegisteredKernel } from '../shape.js';
import { flagBarrierKernel, flagBarrierWindow } from './flag-barrier.js';
import { loadCeilingKernel, storeCeilingKernel, transferWindow } from './transfers.js';

export const ceilings: readonly RegisteredKernel[] = [
  entry('flag_barrier', 'what it costs that all ranks meet', { ranks: layerParameters.ranks }, (shape) => {
    const ranks = shape.number('ranks');
    return flagBarrierKernel(ranks, flagBarrierWindow(ranks));
  }),
  ...(
    [
      ['ceiling_stores', 'what the links carry at best: stores to all peers', storeCeilingKernel],
      ['ceiling_loads', 'what the links carry at best: loads from all peers', loadCeilingKernel],
    ] as const
  ).map(([name, summary, make]) =>
    entry(
      name,
      summary,
      {
        ranks: number('ranks', [2, limits.ranks], 8),
        vectors: number('16-byte vectors to each peer', [1, 2 ** 26], 2 ** 16),
      },
      (shape) => {
        const [ranks, vectors] = [shape.number('ranks'), shape.number('vectors')];
        return make(ranks, vectors, transferWindow(ranks, vectors));
      },
    ),
  ),
];
