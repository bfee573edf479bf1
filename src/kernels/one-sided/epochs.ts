/** The number of a combine's round. */
import { device, windowOf } from '../../lang/index.js';
import type { OneSidedWindow } from './window.js';

/**
 * `counts`: a launch that begins a round counts it, and may do so before `awaitPrevious`. The last combine left the count,
 * and this round's dispatch, behind which this launch begins, awaited that one. Nothing else touches the word, so it may
 * also be raised at once. Other launches read what the one before them counted.
 */
export const countCombine = (window: OneSidedWindow, counts: boolean) =>
  device(
    { name: 'count_combine', params: { mine: windowOf(window) }, returns: 'u32', using: { COUNTS: counts } },
    (g, { mine }, { COUNTS }) => {
      const count = mine.combines.at(g.blockIdx.x);
      if (!COUNTS) return g.load(count);
      // Not by way of L1, where something older might linger.
      const epoch = g.load(count, { order: 'relaxed', scope: 'gpu' }) + 1;
      g.barrier(); // all of the block have read it
      if (g.threadIdx.x === 0) g.store(count, epoch);
      return epoch;
    },
  );
