/**
 * The receive of a dispatch: what comes over the network goes on to its owners in this node, and then the node's ranks meet:
 * when it ends, all slots are filled. Its first block only watches the wire.
 */
import { device, kernel, peers, registers, windowOf } from '../../lang/index.js';
import { countRoutes } from '../common/received.js';
import { patienceOf } from '../common/waits.js';
import { forwardChunk } from './forward-chunk.js';
import { meet } from './meet.js';
import { chunksOf, type HybridShape, hopsOf, nodeAt, railRank } from './shape.js';
import { awaitMessage, watchDispatch } from './watch.js';
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
      },
    },
    (g, { win, wire, node, limit }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const epoch = g.load(mine.begun.at(0));
      if (g.blockIdx.x === 0) {
        u.watchDispatch({ mine, wire, node, epoch, limit });
        return;
      }
      const block = g.blockIdx.x - 1;
      const patience = g.registers('u32', 1, u.patienceOf({ failure: mine.failure, limit }));
      for (let piece = block; piece < u.HOPS * u.CHUNKS; piece += g.gridDim.x - 1) {
        const hop = piece % u.HOPS;
        const chunk = piece / u.HOPS;
        if (u.awaitChunk({ mine, node, hop, chunk, epoch, patience }))
          u.forwardChunk({ win, wire, node, hop, chunk });
      }
      u.meet({ win, node, block, epoch, limit: patience[0]! });
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
      params: {
        mine: windowOf(window),
        node: 'u32',
        hop: 'u32',
        chunk: 'u32',
        epoch: 'u32',
        patience: registers('u32', 1),
      },
      returns: 'bool',
      using: {
        CHUNK: shape.dispatch.chunk,
        awaitMessage: awaitMessage('dispatch'),
        railRank: railRank(shape),
      },
    },
    (g, { mine, node, hop, chunk, epoch, patience }, u) => {
      const { failure } = mine;
      const left = g.shared('u32', 1);
      if (g.threadIdx.x === 0) {
        const peer = u.railRank({ node, hop });
        const first = mine.dispatchLanded.at(hop, 0);
        const flag = mine.dispatchLanded.at(hop, chunk);
        let came = u.awaitMessage({ flag: first, scope: 'gpu', peer, epoch, failure, patience });
        if (came) {
          if (chunk * u.CHUNK < g.load(mine.tokens.at(hop)))
            came = u.awaitMessage({ flag, scope: 'gpu', peer, epoch, failure, patience });
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
        LOCAL: shape.localRanks,
        MAX_TOKENS: shape.maxTokens,
        countRoutes: countRoutes(shape, window),
        nodeAt: nodeAt(shape),
      },
    },
    (g, { mine, node, block }, u) => {
      const rank = node * u.LOCAL + g.rank;
      for (let piece = block; piece < u.HOPS * u.CHUNKS; piece += g.gridDim.x - 1) {
        const first = u.nodeAt({ node, hop: piece % u.HOPS }) * u.LOCAL;
        const start = (piece / u.HOPS) * u.CHUNK;
        for (let token = start; token < g.min(start + u.CHUNK, g.u32(u.MAX_TOKENS)); token += 1)
          u.countRoutes({ mine, rank, turn: token, first, sources: u.LOCAL });
      }
      for (let token = block; token < u.MAX_TOKENS; token += g.gridDim.x - 1)
        u.countRoutes({ mine, rank, turn: token, first: node * u.LOCAL, sources: u.LOCAL });
    },
  );
}
