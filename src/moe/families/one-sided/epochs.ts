/** The number of a round. */
import { device, pointer } from '../../../lang/index.js';

/**
 * Counts a round, in a word that one block of one kernel owns and nothing else touches. May be called before `awaitPrevious`:
 * the launch of the last round, which left the count, has ended, since a phase that lies between has awaited it. So the word
 * may also be raised at once. It is not read by way of L1, where something older might linger.
 */
export const countRound = device(
  { name: 'count_round', params: { count: pointer('u32') }, returns: 'u32' },
  (g, { count }) => {
    const epoch = g.load(count, { order: 'relaxed', scope: 'gpu' }) + 1;
    g.barrier(); // all of the block have read it
    if (g.threadIdx.x === 0) g.store(count, epoch);
    return epoch;
  },
);
