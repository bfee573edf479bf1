/**
 * The receive of a dispatch: what comes over the network goes on to its owners in this node, and then the node's ranks meet:
 * when it ends, all slots are filled. Its first block only watches the wire.
 */
import { kernel } from '../../../lang/index.js';
import { countRoutes } from '../common/received.js';
import { forwardChunk } from './forward-chunk.js';
import type { Hybrid } from './kit.js';
import { meet } from './meet.js';
import { awaitLanded, watchDispatch } from './watch.js';

export function dispatchRecvKernel(h: Hybrid) {
  const { shape, window } = h;
  return kernel(
    {
      name: 'hybrid_dispatch_recv',
      maxThreads: shape.dispatch.threads,
      params: { win: h.at.win, wire: h.at.wire, node: 'u32', limit: 'u32' },
      using: {
        ...h.u,
        ...h.phases.dispatch,
        ...{ awaitLanded, countRoutes: countRoutes(shape, window), forwardChunk: forwardChunk(h) },
        ...{ meet: meet(h, 'dispatch'), watchDispatch: watchDispatch(h) },
      },
    },
    (g, { win, wire, node, limit }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const { failure } = mine;
      const epoch = g.load(mine.begun.at(0));
      const mask = u.maskIn({ masked: mine.masked });
      if (u.thisRankIsOut({ mask, rank: node * u.LOCAL + g.rank, failure, epoch })) return;
      if (g.blockIdx.x === 0) {
        u.watchDispatch({ mine, wire, mask, node, epoch, limit });
        return;
      }
      const out = u.outOfNode({ mask, node });
      const carried = u.carriedHere({ mask, node });
      const block = g.blockIdx.x - 1;
      for (let piece = block; piece < u.HOPS * u.CHUNKS; piece += g.gridDim.x - 1) {
        const chunk = piece / u.HOPS;
        for (let back = g.u32(0); back < carried; back += 1) {
          const line = back * u.HOPS + (piece % u.HOPS);
          const sender = u.senderOf({ node, line });
          const nothing = u.isOut({ mask, rank: sender });
          if (!nothing) {
            // The block waits for the chunk, or for the word that there is none.
            const told = g.shared('u32', 1);
            if (g.threadIdx.x === 0) {
              let came = u.awaitLanded({ landed: mine.dispatchLanded.at(line, 0), epoch, failure });
              if (came) {
                if (chunk * u.CHUNK < g.load(mine.tokens.at(line)))
                  came = u.awaitLanded({ landed: mine.dispatchLanded.at(line, chunk), epoch, failure });
              }
              g.store(told, g.u32(came));
            }
            g.barrier(); // passes on what the thread acquired
            const came = g.load(told) !== 0;
            g.barrier();
            if (came) u.forwardChunk({ win, wire, leftOut: out, node, sender, line, chunk });
          }
        }
      }
      const patience = u.patienceOf({ failure, limit });
      u.meet({ win, out, node, block, epoch, limit: patience });
      if (u.COUNTS) {
        // Where somebody did not come, there is nothing to count.
        if (u.patienceOf({ failure, limit: 1 }) === 0) return;
        // Else what this block and those that it met have brought: the chunks that they forwarded, and a share of the node's own tokens,
        // which the sends brought before.
        const rank = node * u.LOCAL + g.rank;
        for (let piece = block; piece < u.HOPS * u.CHUNKS; piece += g.gridDim.x - 1) {
          const first = ((node + 1 + (piece % u.HOPS)) % u.NODES) * u.LOCAL;
          const start = (piece / u.HOPS) * u.CHUNK;
          for (let turn = start; turn < g.min(start + u.CHUNK, g.u32(u.TURNS)); turn += 1)
            u.countRoutes({ mine, rank, turn, first, sources: u.LOCAL });
        }
        for (let turn = block; turn < u.TURNS; turn += g.gridDim.x - 1)
          u.countRoutes({ mine, rank, turn, first: node * u.LOCAL, sources: u.LOCAL });
      }
    },
  );
}
