/**
 * The receive of a combine: adds up, for each token, what this node's ranks made of it and the row that comes from each other
 * node that it went to. Its first block only watches the wire.
 */
import { kernel } from '../../../lang/index.js';
import { combineParams } from '../common/params.js';
import { zeroCounts } from '../common/received.js';
import type { Hybrid } from './kit.js';
import { sumToken } from './sum-token.js';
import { receiveSums, sendSum } from './sums.js';
import { awaitLanded, watchCombine } from './watch.js';

export function combineRecvKernel(h: Hybrid) {
  const { shape, window } = h;
  const { win, limit, ...sums } = combineParams(window, shape);
  return kernel(
    {
      name: 'hybrid_combine_recv',
      maxThreads: shape.combine.threads,
      params: { win, wire: h.at.wire, ...sums, node: 'u32', limit },
      using: {
        ...h.u,
        ...h.phases.combine,
        ...{ PARTS: shape.combine.parts, awaitLanded, sendSum: sendSum(h), sumToken: sumToken(h) },
        ...{ receiveSums: receiveSums(h), watchCombine: watchCombine(h) },
        zeroCounts: zeroCounts(shape, window),
      },
    },
    (g, { win, wire, topkIds, out, tokens, node, limit }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const epoch = g.load(mine.begun.at(0));
      if (u.COUNTS) u.zeroCounts({ mine });
      const mask = u.maskIn({ masked: mine.masked });
      if (u.thisRankIsOut({ mask, rank: node * u.LOCAL + g.rank, failure: mine.failure, epoch })) return;
      const member = g.rank % u.REPLICAS;
      const share = (tokens + (u.REPLICAS - 1 - member)) / u.REPLICAS;
      if (g.blockIdx.x === 0) {
        if (g.threadIdx.x === 0) g.store(mine.finished.at(0), epoch);
        u.watchCombine({ mine, wire, mask, node, epoch, limit, share });
        return;
      }
      const first = g.warpId * (g.gridDim.x - 1) + g.blockIdx.x - 1;
      const warps = (g.blockDim.x / 32) * (g.gridDim.x - 1);
      for (let piece = first; piece < share * u.PARTS; piece += warps) {
        const turn = piece / u.PARTS;
        const token = turn * u.REPLICAS + member;
        const part = piece % u.PARTS;
        let id = g.i32(-1);
        if (g.laneId < u.K) id = u.living({ mask, id: g.load(topkIds.at(token * u.K + g.laneId)) });
        // Until the messages have come that bring the token's rows, or one did not come in time.
        const chunk = turn / u.CHUNK;
        let came = true;
        for (let hop = g.laneId; hop < u.HOPS; hop += 32) {
          if (((g.load(mine.sent.at(hop, chunk)) >>> (turn % u.CHUNK)) & 1) === 1) {
            const landed = mine.combineLanded.at(hop, chunk);
            if (!u.awaitLanded({ landed, epoch, failure: mine.failure })) came = false;
          }
        }
        g.warp.barrier(); // passes on what the lanes acquired
        if (!g.warp.any(!came)) {
          u.sumToken({ win, wire, out, id, token, turn, node, part });
          if (u.REPLICAS > 1) u.sendSum({ win, out, token, part, epoch });
        }
      }
      // The same warp of another rank has handed on above what this warp takes here, so there is no deadlock.
      if (u.REPLICAS > 1) {
        const patience = g.registers('u32', 1, u.patienceOf({ failure: mine.failure, limit }));
        const turns = (tokens + u.REPLICAS - 1) / u.REPLICAS;
        for (let piece = first; piece < turns * u.PARTS; piece += warps) {
          const turn = piece / u.PARTS;
          u.receiveSums({ mine, out, turn, tokens, part: piece % u.PARTS, node, epoch, patience });
        }
      }
    },
  );
}
