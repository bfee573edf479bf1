/**
 * The send of a combine: for each token that came over this rank's rail the rows of the node's ranks are added up, and one
 * row goes home. It waits for the ranks of its own node only: for their word that the experts are done.
 */
import { kernel } from '../../../lang/index.js';
import { sumHome } from './home.js';
import type { Hybrid } from './kit.js';
import { meet } from './meet.js';
import { combineMessage } from './messages.js';

export function combineSendKernel(h: Hybrid) {
  const { shape } = h;
  return kernel(
    {
      name: 'hybrid_combine_send',
      maxThreads: shape.combine.threads,
      params: { win: h.at.win, wire: h.at.wire, node: 'u32', limit: 'u32' },
      using: using(h),
    },
    (g, { win, wire, node, limit }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const epoch = g.load(mine.begun.at(0));
      const patience = u.patienceOf({ failure: mine.failure, limit });
      const mask = u.maskIn({ masked: mine.masked });
      if (u.thisRankIsOut({ mask, rank: node * u.LOCAL + g.rank, failure: mine.failure, epoch })) return;
      const out = u.outOfNode({ mask, node });
      // On every rank this launch is behind the experts on its stream, so its word says that they are done.
      u.meet({ win, out, node, block: g.blockIdx.x, epoch, limit: patience });
      // A warp that has given up sends nothing: its row would hold sums of rows that nobody made.
      if (u.patienceOf({ failure: mine.failure, limit: 1 }) === 0) return;
      const warps = g.blockDim.x / 32;
      const first = g.blockIdx.x * warps + g.warpId;
      const lines = u.carriedHere({ mask, node }) * u.HOPS;
      for (let piece = first; piece < lines * u.CHUNKS * u.PIECES; piece += g.gridDim.x * warps) {
        const line = (piece / u.PIECES) % lines;
        const chunk = piece / u.PIECES / lines;
        const sender = u.senderOf({ node, line });
        const nothing = u.isOut({ mask, rank: sender });
        const tokens = g.load(mine.tokens.at(line));
        const came = g.load(mine.came.at(line, chunk));
        // Somebody must raise a message without rows, too.
        const pieces = g.max(g.popc(came) * u.PARTS, g.u32(1));
        if (!nothing && (chunk === 0 || chunk * u.CHUNK < tokens) && piece % u.PIECES < pieces) {
          const row = (piece % u.PIECES) / u.PARTS;
          const part = piece % u.PARTS;
          if (came !== 0) {
            // A part of the sum of the chunk's token whose row is number `row` of those that it has here.
            let left = came;
            for (let before = g.u32(0); before < row; before += 1) left &= left - 1;
            const turn = chunk * u.CHUNK + g.ffs(left) - 1;
            let id = g.i32(-1);
            if (g.laneId < u.K) id = g.load(mine.routes.at(line, turn, g.laneId));
            const owners = g.registers('u32', u.OWNERS);
            const owner = u.ownerOf({ expert: id }) - node * u.LOCAL;
            const count = u.listOwners({ owner, ranks: u.LOCAL, owners });
            const to = wire.at(0).combineOut.at(line, chunk, u.ROWS + row * u.ROW);
            const source = sender / u.REPLICAS;
            const token = turn * u.REPLICAS + (g.rank % u.REPLICAS); // the rail's rank is the same member of its group
            u.sumHome({ win, to, source, token, part, owners, count });
          }
          g.warp.barrier(); // what is added below is for the stores of all lanes
          if (g.laneId === 0) {
            const packed = mine.packed.at(line, chunk);
            const before = g.atomicAdd(packed, 1, { order: 'acq_rel', scope: 'gpu' });
            // Who packs the last piece tells the proxy that the message may leave.
            if (before + 1 === pieces) {
              g.store(packed, 0);
              const rows = g.popc(came);
              g.store(wire.at(0).combineOut.at(line, chunk, 0), g.pack('u32', [epoch, tokens, came, rows]));
              g.store(wire.at(0).combineRows.at(line, chunk), rows);
              const ready = wire.at(0).combineReady.at(line, chunk);
              g.store(ready, epoch, { order: 'release', scope: 'sys' });
            }
          }
        }
      }
    },
  );
}

function using(h: Hybrid) {
  const { shape } = h;
  const { rows, row } = combineMessage(shape);
  return {
    ...h.u,
    ...h.phases.combine,
    PARTS: shape.combine.parts,
    /** Parts of a full message, which warps take in turn. */
    PIECES: shape.dispatch.chunk * shape.combine.parts,
    ROWS: rows,
    ROW: row,
    meet: meet(h, 'combine'),
    sumHome: sumHome(h),
  };
}
