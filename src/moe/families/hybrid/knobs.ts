/** What may be set about the hybrid kernels. The same on all ranks. */
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
