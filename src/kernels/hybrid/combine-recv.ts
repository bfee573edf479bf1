/**
 * The receive of a combine: adds up, for each token, what this node's ranks made of it and the row that comes from each other
 * node that it went to. Its first block only watches the wire.
 */
import { device, kernel, peers, pointer, registers, windowOf } from '../../lang/index.js';
import { listOwners } from '../common/owners.js';
import { zeroCounts } from '../common/received.js';
import { patienceOf } from '../common/waits.js';
import { mostOwners } from './node-sum.js';
import { type HybridShape, hopsOf, localOwner, railRank } from './shape.js';
import { sumToken } from './sum-token.js';
import { awaitMessage, watchCombine } from './watch.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

export function combineRecvKernel(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  return kernel(
    {
      name: 'hybrid_combine_recv',
      maxThreads: shape.combine.threads,
      params: {
        win: peers(window),
        wire: peers(wire),
        /** [tokens][K] */
        topkIds: pointer('i32'),
        /** [tokens][row] */
        out: pointer(shape.output.dtype),
        tokens: 'u32',
        node: 'u32',
        limit: 'u32',
      },
      using: {
        K: shape.topK,
        LOCAL: shape.localRanks,
        PARTS: shape.combine.parts,
        OWNERS: mostOwners(shape),
        COUNTS: shape.counts,
        awaitRows: awaitRows(shape, window),
        listOwners,
        localOwner: localOwner(shape),
        patienceOf,
        sumToken: sumToken(shape, window, wire),
        watchCombine: watchCombine(shape, window, wire),
        zeroCounts: zeroCounts(shape, window),
      },
    },
    (g, { win, wire, topkIds, out, tokens, node, limit }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const epoch = g.load(mine.begun.at(0));
      if (u.COUNTS) u.zeroCounts({ mine });
      if (g.blockIdx.x === 0) {
        if (g.threadIdx.x === 0) g.store(mine.finished.at(0), epoch);
        u.watchCombine({ mine, wire, node, epoch, limit, tokens });
        return;
      }
      const patience = g.registers('u32', 1, u.patienceOf({ failure: mine.failure, limit }));
      const first = g.warpId * (g.gridDim.x - 1) + g.blockIdx.x - 1;
      const warps = (g.blockDim.x / 32) * (g.gridDim.x - 1);
      for (let piece = first; piece < tokens * u.PARTS; piece += warps) {
        const token = piece / u.PARTS;
        let id = g.i32(-1);
        if (g.laneId < u.K) id = g.load(topkIds.at(token * u.K + g.laneId));
        const owners = g.registers('u32', u.OWNERS);
        const owner = u.localOwner({ expert: id, node });
        const count = u.listOwners({ owner, ranks: u.LOCAL, owners });
        if (u.awaitRows({ mine, token, node, epoch, patience }))
          u.sumToken({ win, wire, out, token, node, part: piece % u.PARTS, owners, count });
      }
    },
  );
}

/** A warp waits for the messages that a token's rows come with; false where one did not come in time. */
function awaitRows(shape: HybridShape, window: HybridWindow) {
  return device(
    {
      name: 'await_rows',
      params: {
        mine: windowOf(window),
        token: 'u32',
        node: 'u32',
        epoch: 'u32',
        patience: registers('u32', 1),
      },
      returns: 'bool',
      using: {
        HOPS: hopsOf(shape),
        CHUNK: shape.dispatch.chunk,
        awaitMessage: awaitMessage('combine'),
        railRank: railRank(shape),
      },
    },
    (g, { mine, token, node, epoch, patience }, u) => {
      const chunk = token / u.CHUNK;
      let came = true;
      for (let hop = g.laneId; hop < u.HOPS; hop += 32) {
        if (((g.load(mine.sent.at(hop, chunk)) >>> (token % u.CHUNK)) & 1) === 1) {
          const flag = mine.combineLanded.at(hop, chunk);
          const peer = u.railRank({ node, hop });
          const { failure } = mine;
          if (!u.awaitMessage({ flag, scope: 'gpu', peer, epoch, failure, patience })) came = false;
        }
      }
      g.warp.barrier(); // passes on what the lanes acquired
      const all = !g.warp.any(!came);
      if (!all) patience[0] = g.u32(0);
      return all;
    },
  );
}
