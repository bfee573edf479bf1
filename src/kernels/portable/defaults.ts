/** How the kernels are spread where nobody measured: on a GPU a warp for every message that leaves at a time. */
import type { Layer } from '../../layer/index.js';
import type { Place } from '../family.js';
import type { PortableTuning } from './knobs.js';

export function defaultTuning({ maxTokens, topK, ranks }: Layer, kind: Place['kind']): PortableTuning {
  if (kind === 'sim') {
    // Simulated threads cost time and simulated latency costs nothing.
    const launch = { blocks: Math.min(maxTokens, 8), threads: 32, parts: 1 };
    return { dispatch: launch, combine: launch };
  }
  // Small rounds are latency: several warps share a row.
  const parts = maxTokens <= 16 ? 7 : maxTokens <= 64 ? 4 : maxTokens <= 256 ? 2 : 1;
  const threads = 256;
  // Few messages go to a multiprocessor each; of many, three blocks of eight warps are under way on each.
  const blocksFor = (messages: number) =>
    Math.min(396, Math.max(Math.ceil(messages / (threads / 32)), Math.min(messages, 132)));
  return {
    dispatch: { blocks: blocksFor(maxTokens * topK * parts), threads, parts },
    combine: {
      blocks: blocksFor(maxTokens * Math.min(topK, ranks) * 2 * parts),
      threads,
      parts: 2 * parts,
    },
  };
}
