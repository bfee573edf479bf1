/**
 * The receive of a dispatch: waits until all that this round sends here has come. It reads this rank's memory only, and
 * one block would do; counting the routes takes more.
 */
import { kernel } from '../../../lang/index.js';
import { wholeWarps } from '../common/parts.js';
import type { Portable } from './kit.js';
import { messagesOf } from './messages.js';
import type { PortableShape } from './window.js';

/** A thread for each source. */
export const dispatchRecvSpread = ({ dispatch, counts, ranks }: PortableShape) => ({
  blocks: counts ? dispatch.blocks : 1,
  threads: wholeWarps(ranks),
});

export function dispatchRecvKernel(p: Portable) {
  const { shape } = p;
  return kernel(
    {
      name: 'portable_dispatch_recv',
      maxThreads: dispatchRecvSpread(shape).threads,
      params: { win: p.at.win, limit: 'u32' },
      using: { ...p.u, ...p.phases.dispatch, OF_ROUND: messagesOf(shape).ofRound },
    },
    (g, { win, limit }, u) => {
      // The kernel reads what others wrote only where routes are counted. Without that this may begin while this rank's own send still
      // runs, and waits for its end last.
      if (u.COUNTS) g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      // Not `begun`, which that send leaves; and not by way of L1, where something older might linger.
      const epoch = g.load(mine.finished.at(0), { order: 'relaxed', scope: 'gpu' }) + 1;
      const mask = u.maskIn({ masked: mine.masked });
      if (u.thisRankIsOut({ mask, rank: g.rank, failure: mine.failure, epoch })) {
        if (!u.COUNTS) g.awaitPrevious();
        return;
      }
      const patience = u.patienceOf({ failure: mine.failure, limit });
      const peer = g.threadIdx.x;
      // A rank that is left out sends nothing: this rank's own send has written its slots.
      const out = u.isOut({ mask, rank: peer });
      if (peer < u.RANKS && !out) {
        const signal = mine.arrived.at(peer);
        // The word began as 2^32 − 1, and round 0 is the first.
        const value = (epoch + 1) * u.OF_ROUND - 1;
        const since = u.now();
        const came = u.awaitSignal({ signal, value, limit: patience });
        if (!came && patience > 0) u.failed({ failure: mine.failure, peer, epoch });
        if (g.blockIdx.x === 0) u.noteWait({ mine, peer, epoch, since });
      }
      // The end of a launch stands for that of all before it, also where others' work lies between the send and this.
      if (!u.COUNTS) g.awaitPrevious();
      if (u.COUNTS) {
        g.barrier(); // passes on what the threads acquired
        // Where somebody did not come, there is nothing to count.
        if (u.patienceOf({ failure: mine.failure, limit: 1 }) === 0) return;
        for (let turn = g.blockIdx.x; turn < u.TURNS; turn += g.gridDim.x)
          u.countRoutes({ mine, rank: g.rank, turn, first: 0, sources: u.RANKS });
      }
    },
  );
}
