/** How the kernels are spread where nobody measured: on a GPU a warp for every piece of a row, as far as there is room. */
import { type Layer, sharing } from '../../layer/index.js';
import type { Spread } from '../common/parts.js';
import type { PlanTarget } from '../family.js';
import type { PortableTuning } from './knobs.js';
import { chunksOf } from './messages.js';

export function defaultTuning(
  layer: Layer,
  { kind, multiprocessors }: Pick<PlanTarget, 'kind' | 'multiprocessors'>,
): PortableTuning {
  if (kind === 'sim') {
    // Simulated threads cost time and simulated latency costs nothing.
    const launch = { blocks: Math.min(layer.maxTokens, 8), threads: 32, parts: 1 };
    return { dispatch: launch, combine: launch };
  }
  const { turns } = sharing(layer);
  /** Two on each multiprocessor are there at once. */
  const blocksFor = (pieces: number, { threads }: Cut): number =>
    Math.min(2 * multiprocessors, Math.ceil(pieces / (threads / 32)));
  const { dispatch, combine } = spreads.find(({ most }) => layer.maxTokens <= most)!;
  return {
    dispatch: {
      ...dispatch,
      blocks: blocksFor(turns * dispatch.parts + layer.ranks * chunksOf(layer), dispatch),
    },
    combine: { ...combine, blocks: blocksFor(turns * combine.parts, combine) },
  };
}

type Cut = Pick<Spread, 'threads' | 'parts'>;

/** Small rounds are latency: several warps share a row. Large ones are bandwidth, which fewer warps carry better. */
const spreads: readonly { readonly most: number; readonly dispatch: Cut; readonly combine: Cut }[] = [
  { most: 2, dispatch: { threads: 32, parts: 14 }, combine: { threads: 32, parts: 14 } },
  { most: 16, dispatch: { threads: 64, parts: 7 }, combine: { threads: 64, parts: 7 } },
  { most: 64, dispatch: { threads: 128, parts: 7 }, combine: { threads: 128, parts: 14 } },
  { most: 256, dispatch: { threads: 256, parts: 4 }, combine: { threads: 128, parts: 7 } },
  {
    most: Number.POSITIVE_INFINITY,
    dispatch: { threads: 256, parts: 4 },
    combine: { threads: 128, parts: 2 },
  },
];
