/**
 * The receive of a dispatch: what comes over the network goes on to its owners in this node, and then the node's ranks meet:
 * when it ends, all slots are filled. Its first block only watches the wire.
 */
import { device, kernel, peers, windowOf } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { countRoutes } from '../common/received.js';
import { patienceOf } from '../common/waits.js';
import { forwardChunk } from './forward-chunk.js';
import { meet } from './meet.js';
import { carrying, leavingOut, nodeAt, outOfNode } from './rails.js';
import { chunksOf, type HybridShape, hopsOf } from './shape.js';
import { awaitLanded, watchDispatch } from './watch.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

export function dispatchRecvKernel(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  return kernel(
    {
      name: 'hybrid_dispatch_recv',
      maxThreads: shape.dispatch.threads,
      params: { win: peers(window), wire: peers(wire), node: 'u32', limit: 'u32' },
      using: {
        HOPS: hopsOf(shape),
        CHUNKS: chunksOf(shape),
        COUNTS: shape.counts,
        awaitChunk: awaitChunk(shape, window),
        countShare: countShare(shape, window),
        forwardChunk: forwardChunk(shape, window, wire),
        meet: meet(shape, window, 'dispatch'),
        patienceOf,
        watchDispatch: watchDispatch(shape, window, wire),
        outOfNode: outOfNode(shape),
        ...carrying(shape),
        ...leavingOut(shape, 'dispatch'),
      },
    },
    (g, { win, wire, node, limit }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const epoch = g.load(mine.begun.at(0));
      const mask = u.maskIn({ masked: mine.masked });
      if (u.amOut({ mask, node, failure: mine.failure, epoch })) return;
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
            if (u.awaitChunk({ mine, line, chunk, epoch }))
              u.forwardChunk({ win, wire, out, node, sender, line, chunk });
          }
        }
      }
      const patience = u.patienceOf({ failure: mine.failure, limit });
      u.meet({ win, out, node, block, epoch, limit: patience });
      if (u.COUNTS) {
        // Where somebody did not come, there is nothing to count.
        if (u.patienceOf({ failure: mine.failure, limit: 1 }) !== 0) u.countShare({ mine, node, block });
      }
    },
  );
}

/** The block waits for a chunk, or for the word that there is none; false where neither came. */
function awaitChunk(shape: HybridShape, window: HybridWindow) {
  return device(
    {
      name: 'await_chunk',
      params: { mine: windowOf(window), line: 'u32', chunk: 'u32', epoch: 'u32' },
      returns: 'bool',
      using: { CHUNK: shape.dispatch.chunk, awaitLanded },
    },
    (g, { mine, line, chunk, epoch }, u) => {
      const { failure } = mine;
      const left = g.shared('u32', 1);
      if (g.threadIdx.x === 0) {
        let came = u.awaitLanded({ landed: mine.dispatchLanded.at(line, 0), epoch, failure });
        if (came) {
          if (chunk * u.CHUNK < g.load(mine.tokens.at(line)))
            came = u.awaitLanded({ landed: mine.dispatchLanded.at(line, chunk), epoch, failure });
        }
        g.store(left, g.u32(came));
      }
      g.barrier(); // passes on what the thread acquired
      const came = g.load(left) !== 0;
      g.barrier();
      return came;
    },
  );
}

/**
 * Counts routes of what this block and those that it met have brought: the chunks that they forwarded, and a share of the
 * node's own tokens, which the sends brought before.
 */
function countShare(shape: HybridShape, window: HybridWindow) {
  return device(
    {
      name: 'count_share',
      params: { mine: windowOf(window), node: 'u32', block: 'u32' },
      using: {
        HOPS: hopsOf(shape),
        CHUNKS: chunksOf(shape),
        CHUNK: shape.dispatch.chunk,
        TURNS: sharing(shape).turns,
        LOCAL: shape.localRanks,
        countRoutes: countRoutes(shape, window),
        nodeAt: nodeAt(shape),
      },
    },
    (g, { mine, node, block }, u) => {
      const rank = node * u.LOCAL + g.rank;
      for (let piece = block; piece < u.HOPS * u.CHUNKS; piece += g.gridDim.x - 1) {
        const first = u.nodeAt({ node, hop: piece % u.HOPS }) * u.LOCAL;
        const start = (piece / u.HOPS) * u.CHUNK;
        for (let turn = start; turn < g.min(start + u.CHUNK, g.u32(u.TURNS)); turn += 1)
          u.countRoutes({ mine, rank, turn, first, sources: u.LOCAL });
      }
      for (let turn = block; turn < u.TURNS; turn += g.gridDim.x - 1)
        u.countRoutes({ mine, rank, turn, first: node * u.LOCAL, sources: u.LOCAL });
    },
  );
}
