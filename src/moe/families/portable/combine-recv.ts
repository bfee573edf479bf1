/**
 * The receive of a combine: adds up each token's rows as soon as they are home. One block more than there is work for has
 * all ranks meet meanwhile, so that the next round may send at once.
 */
import { device, kernel } from '../../../lang/index.js';
import { mostRows } from '../common/owners.js';
import { combineParams } from '../common/params.js';
import type { Portable } from './kit.js';
import { sumPart } from './sum-part.js';
import { receiveSums, sendSum } from './sums.js';
import { returnedParts } from './window.js';

export function combineRecvKernel(p: Portable) {
  const { shape, window } = p;
  return kernel(
    {
      name: 'portable_combine_recv',
      maxThreads: shape.combine.threads,
      params: combineParams(window, shape),
      using: {
        ...{ ...p.u, ...p.phases.combine, PARTS: returnedParts(shape).parts, ROWS: mostRows(shape) },
        ...{ DTYPE: shape.output.dtype, meet: meet(p), sumPart: sumPart(p) },
        ...{ sendSum: sendSum(p), receiveSums: receiveSums(p) },
      },
    },
    (g, { win, topkIds, out, tokens, limit }, u) => {
      if (!u.EARLY) g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const epoch = g.load(mine.begun.at(0), { order: 'relaxed', scope: 'gpu' });
      const mask = u.maskIn({ masked: mine.masked });
      // It may end before its own send, which writes nothing on a rank that is out: dispatch has recorded that.
      if (u.thisRankIsOut({ mask, rank: g.rank, failure: mine.failure, epoch })) return;
      const patience = g.registers('u32', 1, u.patienceOf({ failure: mine.failure, limit }));
      if (u.COUNTS) u.zeroCounts({ mine });
      if (g.blockIdx.x === 0) {
        u.meet({ win, mask, epoch, limit: patience[0]! });
        return;
      }
      const first = g.warpId * (g.gridDim.x - 1) + g.blockIdx.x - 1;
      const warps = (g.blockDim.x / 32) * (g.gridDim.x - 1);
      const member = g.rank % u.REPLICAS;
      const turns = (tokens + (u.REPLICAS - 1 - member)) / u.REPLICAS;
      for (let piece = first; piece < turns * u.PARTS; piece += warps) {
        const token = (piece / u.PARTS) * u.REPLICAS + member;
        const part = piece % u.PARTS;
        let id = g.i32(-1);
        // Not by way of L1, which may hold what was there before: this launch may be early, and awaits nobody.
        if (g.laneId < u.K)
          id = g.load(topkIds.at(token * u.K + g.laneId), { order: 'relaxed', scope: 'gpu' });
        const owners = g.registers('u32', u.ROWS);
        const count = u.findOwners({ expert: u.living({ mask, id }), owners });
        // Until this part of all of the token's rows is home, or one did not come in time.
        let peer = g.u32(0);
        for (const r of g.unroll(u.ROWS)) {
          if (g.laneId === r) peer = owners[r]!;
        }
        let came = true;
        if (g.laneId < count && !(u.STAYS && peer === g.rank)) {
          const signal = mine.home.at(peer, token / u.REPLICAS, part);
          came = u.awaitSignal({ signal, value: epoch, limit: patience[0]! });
          if (!came && patience[0]! > 0) u.failed({ failure: mine.failure, peer, epoch });
        }
        g.warp.barrier(); // passes on what the lanes acquired
        const all = !g.warp.any(!came);
        if (!all) patience[0] = g.u32(0);
        if (all) {
          if (u.REPLICAS > 1) {
            u.sumPart({
              at: { mine, token, owners },
              count,
              out: mine.sums.at(0, 0).as(u.DTYPE),
              token,
              part,
            });
            u.sendSum({ win, token, part, epoch });
          } else {
            u.sumPart({ at: { mine, token, owners }, count, out, token, part });
          }
        }
      }
      // The same warp of another rank has handed on above what this warp takes here, so there is no deadlock.
      if (u.REPLICAS > 1) {
        const pieces = ((tokens + u.REPLICAS - 1) / u.REPLICAS) * u.PARTS;
        for (let piece = first; piece < pieces; piece += warps) {
          const turn = piece / u.PARTS;
          u.receiveSums({ win, out, turn, tokens, part: piece % u.PARTS, epoch, patience });
        }
      }
    },
  );
}

/**
 * The round's meeting, of one block: every rank says that what dispatch brought it has been read, its send of this combine
 * included, and waits until all have said so. So its end stands for that of all launches before.
 */
function meet(p: Portable) {
  return device(
    {
      params: { win: p.at.win, mask: 'v16', epoch: 'u32', limit: 'u32' },
      using: { ...p.u, ...p.phases.combine },
    },
    (g, { win, mask, epoch, limit }, u) => {
      if (u.EARLY) g.awaitPrevious();
      const mine = win.at(g.rank);
      for (let peer = g.threadIdx.x; peer < u.RANKS; peer += g.blockDim.x) {
        if (!u.isOut({ mask, rank: peer })) {
          const signal = win.at(peer).released.at(g.rank);
          u.signalBy({ mine, peer, signal, value: epoch, adds: false });
        }
      }
      let left = limit;
      for (let peer = g.threadIdx.x; peer < u.RANKS; peer += g.blockDim.x) {
        if (!u.isOut({ mask, rank: peer })) {
          const since = u.now();
          if (!u.awaitSignal({ signal: mine.released.at(peer), value: epoch, limit: left })) {
            if (left > 0) u.failed({ failure: mine.failure, peer, epoch });
            left = g.u32(0);
          }
          u.noteWait({ mine, peer, epoch, since });
        }
      }
      if (g.threadIdx.x === 0) g.store(mine.finished.at(0), epoch);
    },
  );
}
