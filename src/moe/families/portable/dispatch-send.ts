/**
 * The send of a dispatch: routes to every peer, a token's rows once to each rank that owns one of its experts. Messages are
 * warps' (messages.ts counts them); nobody waits.
 */
import { kernel } from '../../../lang/index.js';
import { dispatchParams } from '../common/params.js';
import { notePlaces } from '../common/places.js';
import { prefetchPart } from '../common/prefetch.js';
import type { Portable } from './kit.js';
import { chunksOf } from './messages.js';
import { sendRows } from './send-rows.js';
import { tellRoutes } from './tell-routes.js';

export function dispatchSendKernel(p: Portable) {
  const { shape, window } = p;
  return kernel(
    {
      name: 'portable_dispatch_send',
      maxThreads: shape.dispatch.threads,
      params: dispatchParams(window, shape),
      using: {
        ...{ ...p.u, ...p.phases.dispatch, CHUNKS: chunksOf(shape), PARTS: shape.dispatch.parts },
        ...{ tellRoutes: tellRoutes(p), sendRows: sendRows(p), notePlaces: notePlaces(shape) },
        prefetchPart: prefetchPart(shape, shape.dispatch.parts),
      },
    },
    (g, { win, topkIds, topkWeights, rows, tokens, placing, layer }, u) => {
      const inputs = { topkIds, topkWeights, rows, tokens, placing };
      // Neighbouring pieces go to different multiprocessors; routes first, which say what comes.
      const routes = u.RANKS * u.CHUNKS;
      const first = g.warpId * g.gridDim.x + g.blockIdx.x;
      const warps = (g.blockDim.x / 32) * g.gridDim.x;
      const member = g.rank % u.REPLICAS;
      // Each warp's first row and its ids are asked for, to be brought near.
      const near = first < routes ? first + warps - routes : first - routes;
      const soon = (near / u.PARTS) * u.REPLICAS + member;
      if (soon < tokens) {
        u.prefetchPart({ rows, token: soon, part: near % u.PARTS, thread: g.laneId, threads: g.u32(32) });
        if (g.laneId === 0) g.prefetch(topkIds.at(soon * u.K));
      }
      g.awaitPrevious();
      const mine = win.at(g.rank);
      // Before the receive can begin, which may give up while this still sends: so all threads see the same.
      const lost = g.load(mine.failure.at(0), { order: 'relaxed', scope: 'gpu' }) !== 0;
      g.releaseNext();
      const epoch = g.load(mine.finished.at(0)) + 1;
      if (g.blockIdx.x === 0 && g.threadIdx.x === 0) g.store(mine.begun.at(0), epoch);
      u.noteLayer({ mine, layer, epoch });
      // A rank that has given up sends nothing: peers may still read what the round before brought, and nobody vouches that they have.
      if (lost) return;
      const mask = u.maskIn({ masked: mine.masked });
      if (u.thisRankIsOut({ mask, rank: g.rank, failure: mine.failure, epoch })) return;

      /** [peer]: what this block's messages add to its `arrived`. */
      const told = g.shared('u32', u.RANKS);
      for (let peer = g.threadIdx.x; peer < u.RANKS; peer += g.blockDim.x) g.store(told.at(peer), 0);
      g.barrier();

      const turns = (tokens + (u.REPLICAS - 1 - member)) / u.REPLICAS;
      for (let piece = first; piece < routes + turns * u.PARTS; piece += warps) {
        if (piece < routes) {
          // Ranks begin with different peers, so that no window is everybody's first.
          const peer = (piece + g.rank) % u.RANKS;
          const chunk = piece / u.RANKS;
          u.tellRoutes({ win, mask, inputs, peer, chunk, told });
        } else {
          const turn = (piece - routes) / u.PARTS;
          const part = (piece - routes) % u.PARTS;
          u.sendRows({ win, mask, inputs, token: turn * u.REPLICAS + member, part, told });
          if (u.PLACED && part === 0) u.notePlaces({ topkIds, placing, turn, tokens });
        }
      }
      g.barrier();
      for (let peer = g.threadIdx.x; peer < u.RANKS; peer += g.blockDim.x) {
        const signal = win.at(peer).arrived.at(g.rank);
        const value = g.load(told.at(peer));
        if (value > 0) u.settle({ mine, peer, signal, value, adds: true });
      }
    },
  );
}
