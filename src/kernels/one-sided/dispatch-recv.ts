/**
 * The receive of a split dispatch: waits until every block of every rank has sent its share. It reads this rank's memory
 * only, and needs few blocks: each takes every gridDim-th block of the sends.
 */
import { kernel, peers } from '../../lang/index.js';
import { countRoutes } from '../common/received.js';
import { patienceOf } from '../common/waits.js';
import { flags } from './flags.js';
import type { OneSidedShape, OneSidedWindow } from './window.js';

/** A block for every few of the sends': waiting needs one, counting routes many. */
export const dispatchRecvSpread = ({ dispatch, counts, ranks }: OneSidedShape) => ({
  blocks: counts ? dispatch.blocks : 1,
  threads: Math.ceil(Math.max(ranks, 32) / 32) * 32,
});

export function dispatchRecvKernel(shape: OneSidedShape, window: OneSidedWindow) {
  return kernel(
    {
      name: 'one_sided_dispatch_recv',
      maxThreads: dispatchRecvSpread(shape).threads,
      params: { win: peers(window), limit: 'u32' },
      using: {
        BLOCKS: shape.dispatch.blocks,
        MAX_TOKENS: shape.maxTokens,
        PARTS: shape.dispatch.parts,
        COUNTS: shape.counts,
        awaitPeers: flags(window, shape, 'dispatch').awaitPeers,
        countRoutes: countRoutes(shape, window),
        patienceOf,
      },
    },
    (g, { win, limit }, u) => {
      const mine = win.at(g.rank);
      g.awaitPrevious();
      g.releaseNext();
      let patience = u.patienceOf({ failure: mine.failure, limit });
      for (let block = g.blockIdx.x; block < u.BLOCKS; block += g.gridDim.x) {
        // This rank's own send, ahead on the stream, has written the round's epoch.
        const epoch = g.load(mine.dispatches.at(block));
        // Who has given up on a peer waits for none of its blocks again.
        if (!u.awaitPeers({ win, block, epoch, limit: patience })) patience = g.u32(0);
        if (u.COUNTS) {
          g.barrier(); // passes on what the threads acquired
          for (let piece = block; piece < u.MAX_TOKENS * u.PARTS; piece += u.BLOCKS) {
            if (piece % u.PARTS === 0) u.countRoutes({ mine, token: piece / u.PARTS });
          }
        }
      }
    },
  );
}
