/**
 * The receive of a split dispatch: waits until every block of every rank has sent its share. It reads this rank's memory
 * only, and one block is enough for it, unless routes are counted.
 */
import { kernel } from '../../../lang/index.js';
import { brought } from './brought.js';
import { countRound, flags } from './flags.js';
import type { OneSided } from './kit.js';
import { dispatchRecvSpread } from './window.js';

export function dispatchRecvKernel(o: OneSided) {
  return kernel(
    {
      name: 'one_sided_dispatch_recv',
      maxThreads: dispatchRecvSpread(o.shape).threads,
      params: { win: o.at.win, limit: 'u32' },
      using: { ...o.u, ...o.phases.dispatch, ...flags(o, 'dispatch'), ...brought(o), countRound },
    },
    (g, { win, limit }, u) => {
      const mine = win.at(g.rank);
      const mask = u.maskIn({ masked: mine.masked });
      const epoch = u.countRound({ count: mine.dispatchRecvs.at(g.blockIdx.x) });
      // The kernel reads what others wrote only where routes are counted. Without that this may begin while this rank's own send still
      // runs, and waits for its end last.
      if (u.COUNTS) g.awaitPrevious();
      g.releaseNext();
      if (u.thisRankIsOut({ mask, rank: g.rank, failure: mine.failure, epoch })) {
        if (!u.COUNTS) g.awaitPrevious();
        return;
      }
      let patience = u.patienceOf({ failure: mine.failure, limit });
      // The sends' blocks that this one looks after: every gridDim-th. A thread for each of their flags, or for several.
      const blocks = (u.BLOCKS + g.gridDim.x - 1 - g.blockIdx.x) / g.gridDim.x;
      for (let i = g.threadIdx.x; i < blocks * u.RANKS; i += g.blockDim.x) {
        const block = g.blockIdx.x + (i / u.RANKS) * g.gridDim.x;
        // A rank that has given up waits for nothing else.
        if (!u.awaitPeer({ mine, mask, block, peer: i % u.RANKS, epoch, limit: patience }))
          patience = g.u32(0);
      }
      if (u.TELLS) {
        g.barrier(); // passes on what the threads acquired
        if (g.blockIdx.x === 0) u.noteReached({ mine, mask, epoch });
      }
      // The end of a launch stands for that of all before it, also where others' work lies between the send and this.
      if (!u.COUNTS) g.awaitPrevious();
      if (u.COUNTS) {
        g.barrier(); // passes on what the threads acquired, and whether one of them gave up: then there is nothing to count
        const lost = u.patienceOf({ failure: mine.failure, limit }) === 0;
        for (let block = g.blockIdx.x; block < u.BLOCKS && !lost; block += g.gridDim.x) {
          for (let piece = block; piece < u.TURNS * u.PARTS; piece += u.BLOCKS) {
            if (piece % u.PARTS === 0)
              u.countRoutes({ mine, rank: g.rank, turn: piece / u.PARTS, first: 0, sources: u.RANKS });
          }
        }
      }
    },
  );
}
