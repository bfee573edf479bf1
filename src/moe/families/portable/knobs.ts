/** Options of the portable kernels. */
import { blocksTried, count, type KnobValues } from '../knobs.js';

const spread = {
  blocks: count('thread blocks of each half', [1, 65_536], (_tokens, _now, multiprocessors) => [
    16,
    32,
    ...blocksTried(multiprocessors),
  ]),
  // With more threads the sums would not fit in registers.
  threads: count('threads a block', [32, 256], () => [64, 128, 256], 32),
  parts: count('pieces that a row is cut into, each a message', [1, 1024], () => [1, 2, 4, 7, 14]),
};

/** The knobs of each phase; a search tries those of combine first. */
export const portableKnobs = { combine: spread, dispatch: spread };

export type PortableTuning = KnobValues<typeof portableKnobs>;
