/**
 * A combine that pulls: one rendezvous at the head says that the experts of every rank are done; then each rank reads the
 * partial rows of its tokens from the `output` sections of its peers. Half the window of a combine that pushes.
 */
import { kernel } from '../../lang/index.js';
import { combineParams } from '../common/params.js';
import { zeroCounts } from '../common/received.js';
import { patienceOf } from '../common/waits.js';
import { countRound } from './epochs.js';
import { flags } from './flags.js';
import { gatherPulled } from './gather.js';
import { sumPiece } from './sum-piece.js';
import { team } from './team.js';
import type { OneSidedShape, OneSidedWindow } from './window.js';

export function pullKernel(shape: OneSidedShape, window: OneSidedWindow) {
  const { arrive, awaitPeers } = flags(window, shape, 'combine');
  return kernel(
    {
      name: 'one_sided_combine',
      maxThreads: shape.combine.threads,
      params: combineParams(window, shape),
      using: {
        K: shape.topK,
        PARTS: shape.combine.parts,
        TEAMS: shape.combine.teams,
        team: team(shape.combine),
        COUNTS: shape.counts,
        countRound,
        patienceOf,
        sumPiece: sumPiece(shape, window, gatherPulled(shape, window)),
        zeroCounts: zeroCounts(shape, window),
        arrive,
        awaitPeers,
      },
    },
    (g, { win, topkIds, out, tokens, limit }, u) => {
      const mine = win.at(g.rank);
      const epoch = u.countRound({ count: mine.combines.at(g.blockIdx.x) });
      g.awaitPrevious();
      g.releaseNext();
      const patience = g.registers('u32', 1);
      patience[0] = u.patienceOf({ failure: mine.failure, limit });

      // This rank's experts wrote `output` before this launch began (stream order), so each block may vouch for it.
      // Not who has given up, and has not all that its experts need.
      if (patience[0]! > 0) u.arrive({ win, epoch });
      u.awaitPeers({ win, epoch, limit: patience[0]! });

      const first = u.team.index() * g.gridDim.x + g.blockIdx.x;
      for (let piece = first; piece < tokens * u.PARTS; piece += g.gridDim.x * u.TEAMS) {
        const token = piece / u.PARTS;
        let id = g.i32(-1);
        if (g.laneId < u.K) id = g.load(topkIds.at(token * u.K + g.laneId));
        u.sumPiece({ win, out, id, token, part: piece % u.PARTS, epoch, patience });
      }
      if (u.COUNTS) u.zeroCounts({ mine });
    },
  );
}
