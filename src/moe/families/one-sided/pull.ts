/**
 * A combine that pulls: one rendezvous at the head says that the experts of every rank are done; then each rank reads the
 * partial rows of its tokens from the `output` sections of its peers. Half the window of a combine that pushes.
 */
import { device, kernel, pointer } from '../../../lang/index.js';
import { combineParams } from '../common/params.js';
import { countRound, flags } from './flags.js';
import { gatherPulled } from './gather.js';
import { addRows, askForRows, halvesOf } from './halves.js';
import type { OneSided } from './kit.js';
import { sumPiece } from './sum-piece.js';

export function pullKernel(o: OneSided) {
  return kernel(
    {
      name: 'one_sided_combine',
      maxThreads: o.shape.combine.threads,
      params: combineParams(o.window, o.shape),
      using: {
        ...{ ...o.u, ...o.phases.combine, ...flags(o, 'combine'), countRound },
        ...{ routeIn: routeIn(o), sumPiece: sumPiece(o, gatherPulled(o)) },
        ...{ ...halvesOf(o), askForRows: askForRows(o), addRows: addRows(o) },
      },
    },
    (g, { win, topkIds, out, tokens, limit }, u) => {
      const mine = win.at(g.rank);
      const epoch = u.countRound({ count: mine.combines.at(g.blockIdx.x) });
      const mask = u.maskIn({ masked: mine.masked });
      g.awaitPrevious();
      g.releaseNext();
      if (u.thisRankIsOut({ mask, rank: g.rank, failure: mine.failure, epoch })) return;
      const patience = g.registers('u32', 1);
      patience[0] = u.patienceOf({ failure: mine.failure, limit });

      // The first ids are on their way while ranks meet, each next while a piece is added up.
      const first = u.team.index() * g.gridDim.x + g.blockIdx.x;
      let id = u.living({ mask, id: u.routeIn({ topkIds, piece: first, tokens }) });

      // This rank's experts wrote `output` before this launch began (stream order), so each block may vouch for it; but not where this rank
      // has given up: then its experts lack rows.
      if (patience[0]! > 0) u.arrive({ win, mask, epoch });
      u.awaitPeers({ win, mask, epoch, limit: patience[0]! });

      const stride = g.gridDim.x * u.TEAMS;
      if (u.EACH > 0) {
        const both = g.shared('v16', u.BOTH);
        let half = g.u32(0);
        let count = g.u32(0);
        if (first < tokens) count = u.askForRows({ win, both, half, token: first, id });
        g.async.commit();
        id = u.living({ mask, id: u.routeIn({ topkIds, piece: first + stride, tokens }) });
        for (let token = first; token < tokens; token += stride) {
          const next = u.living({ mask, id: u.routeIn({ topkIds, piece: token + 2 * stride, tokens }) });
          let later = g.u32(0);
          if (token + stride < tokens)
            later = u.askForRows({ win, both, half: 1 - half, token: token + stride, id });
          g.async.commit();
          g.async.wait(1);
          u.addRows({ both, half, token, count, out });
          count = later;
          half = 1 - half;
          id = next;
        }
      } else {
        for (let piece = first; piece < tokens * u.PARTS; piece += stride) {
          const next = u.living({ mask, id: u.routeIn({ topkIds, piece: piece + stride, tokens }) });
          u.sumPiece({ win, out, id, token: piece / u.PARTS, part: piece % u.PARTS, epoch, patience });
          id = next;
        }
      }
      if (u.COUNTS) u.zeroCounts({ mine });
    },
  );
}

/** In lane k the id of route k of a piece's token, -1 where there is none. */
const routeIn = ({ u, phases }: OneSided) =>
  device(
    {
      params: { topkIds: pointer('i32'), piece: 'u32', tokens: 'u32' },
      returns: 'i32',
      using: { ...u, ...phases.combine },
    },
    (g, { topkIds, piece, tokens }, { K, PARTS }) => {
      const token = piece / PARTS;
      let id = g.i32(-1);
      if (token < tokens && g.laneId < K) id = g.load(topkIds.at(token * K + g.laneId));
      return id;
    },
  );
