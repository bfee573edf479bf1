/**
 * Dispatch: each rank pushes its tokens into the windows of the ranks that own their experts. A token has the same
 * slot everywhere, its own index, and a payload row travels once to a rank, however many of its experts live
 * there. Expert ids go to every rank for every slot: -1 says 'not yours' and 'empty' alike.
 *
 * As one launch it meets its peers at its tail: when it ends, everything sent to this rank has arrived. Split, the send
 * ends with its word to the peers, and waits for nobody; the receive (dispatch-recv.ts) waits for theirs.
 */
import { kernel } from '../../../lang/index.js';
import { sentPayloads } from '../../layer/index.js';
import { dispatchParams } from '../common/params.js';
import { notePlaces } from '../common/places.js';
import { brought } from './brought.js';
import { flags } from './flags.js';
import type { OneSided } from './kit.js';
import { prefetchRows, routeOf, tellRoutes } from './routes.js';
import { sendRow } from './send-row.js';

export function dispatchKernel(o: OneSided) {
  const { shape, window } = o;
  const sent = sentPayloads(shape);
  return kernel(
    {
      name: shape.split ? 'one_sided_dispatch_send' : 'one_sided_dispatch',
      maxThreads: shape.dispatch.threads,
      /** `limit`: microseconds to wait for a peer. */
      params: { ...dispatchParams(window, shape), limit: 'u32' },
      using: {
        ...{ ...o.u, ...o.phases.dispatch, ...flags(o, 'dispatch'), COUNTS: shape.counts && !shape.split },
        ...{ SENT: sent, sendRow: sent.map((p) => sendRow(o, p)), prefetchRows: prefetchRows(o) },
        ...{ ...brought(o), routeOf: routeOf(o), tellRoutes: tellRoutes(o), notePlaces: notePlaces(shape) },
      },
    },
    (g, { win, topkIds, topkWeights, rows, tokens, placing, layer, limit }, u) => {
      const mine = win.at(g.rank);
      const inputs = { topkIds, topkWeights, rows, tokens, placing };
      // This launch may begin while the kernel before it still runs, and reads what that one left only behind
      // `awaitPrevious`. Until then it asks for its first rows to be brought near, which reads nothing.
      u.prefetchRows({ inputs });
      const mask = u.maskIn({ masked: mine.masked });
      // A pushing combine lies between two dispatches and has awaited the last one, so its count of rounds may be read
      // at once, but not by way of L1, where something older might linger.
      const count = mine.dispatches.at(g.blockIdx.x);
      let epoch = g.u32(1);
      if (u.PUSH) epoch += g.load(count, { order: 'relaxed', scope: 'gpu' });
      g.awaitPrevious();
      g.releaseNext();
      if (!u.PUSH) epoch += g.load(count);
      if (u.thisRankIsOut({ mask, rank: g.rank, failure: mine.failure, epoch })) return;
      let patience = g.u32(0);
      if (!u.SPLIT) patience = u.patienceOf({ failure: mine.failure, limit });

      u.noteLayer({ mine, layer, epoch });
      if (u.TELLS) {
        if (g.blockIdx.x === 0 && g.threadIdx.x < u.RANKS) {
          const out = u.isOut({ mask, rank: g.threadIdx.x });
          if (!out) g.store(win.at(g.threadIdx.x).brought.at(epoch % 4, g.rank), tokens);
        }
      }
      // The work is pieces of rows, PARTS a turn; block b takes every gridDim-th, its teams in turn.
      const pieces = u.turnsToTell({ mine, rank: g.rank, tokens, epoch }) * u.PARTS;
      const first = u.team.index() * g.gridDim.x + g.blockIdx.x;
      for (let piece = first; piece < pieces; piece += g.gridDim.x * u.TEAMS) {
        const token = (piece / u.PARTS) * u.REPLICAS + (g.rank % u.REPLICAS);
        const part = piece % u.PARTS;
        const { id: wanted, weight } = u.routeOf({ inputs, token });
        const id = u.living({ mask, id: wanted });
        for (const n of g.unroll(u.SENT.length)) {
          u.sendRow[n]!({ win, from: rows[u.SENT[n]!]!, token, tokens, part, id });
        }
        if (part === 0) u.tellRoutes({ win, mask, token, id, weight, epoch });
        if (u.PLACED) {
          if (part === 0 && u.team.warp() === 0)
            u.notePlaces({ topkIds, placing, turn: piece / u.PARTS, tokens });
        }
      }

      // All stores of this block happen before this barrier ends, and the release behind it is cumulative: what the
      // block's threads wrote to any rank is visible to whoever acquires its flag.
      g.barrier();
      u.arrive({ win, mask, epoch });
      if (!u.SPLIT) {
        u.awaitPeers({ win, mask, epoch, limit: patience });
        if (g.blockIdx.x === 0) u.noteReached({ mine, mask, epoch });
      }
      if (u.COUNTS) {
        // The same pieces, seen from here: slots of every source whose ids have just arrived.
        for (let piece = g.blockIdx.x; piece < u.TURNS * u.PARTS; piece += g.gridDim.x) {
          if (piece % u.PARTS === 0)
            u.countRoutes({ mine, rank: g.rank, turn: piece / u.PARTS, first: 0, sources: u.RANKS });
        }
      }
      if (g.threadIdx.x === 0) g.store(count, epoch);
    },
  );
}
