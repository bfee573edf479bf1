/** A chunk that came from another node goes on to its owners in this one; a block. */
import { device } from '../../../lang/index.js';
import { numbers } from '../common/params.js';
import { unitBytes, unitOf } from '../common/parts.js';
import { storeRows, tellRoutes } from './deliver.js';
import type { Hybrid } from './kit.js';
import { dispatchMessage, header } from './messages.js';

export function forwardChunk(h: Hybrid) {
  return device(
    {
      params: {
        ...{ win: h.at.win, wire: h.at.wire },
        /** The ranks of this node that are left out. */
        leftOut: 'u32',
        node: 'u32',
        /** The rank that it comes from, and the line. */
        ...numbers('sender', 'line', 'chunk'),
      },
      using: using(h),
    },
    (g, { win, wire, leftOut, node, sender, line, chunk }, u) => {
      const mine = win.at(g.rank);
      const source = sender / u.REPLICAS;
      const start = chunk * u.CHUNK;
      const message = wire.at(0).dispatchIn;
      const end = g.min(g.u32(u.CHUNK), u.TURNS - start);
      // Nothing goes to those either that have left out this rank, which stood still and does not know: they have the tokens from
      // another carrier by now.
      let out = leftOut;
      if (u.MASKS) {
        let leavesUsOut = false;
        if (g.laneId < u.LOCAL && ((leftOut >>> g.laneId) & 1) === 0)
          leavesUsOut = u.isOut({ mask: g.load(win.at(g.laneId).masked), rank: node * u.LOCAL + g.rank });
        out |= g.warp.ballot(leavesUsOut);
      }
      // The tokens that have come. A chunk that does not exist holds bytes of an old round. A bit beyond the last token would become an
      // address: the proxy has looked, but whoever wrote the message may do so again.
      const possible = g.u32(0xffffffff) >>> (32 - end);
      let mask = g.u32(0);
      if (start < g.load(mine.tokens.at(line)))
        mask = g.load(message.at(line, chunk, 0).as('u32').at(u.MASK)) & possible;
      if (g.threadIdx.x === 0) g.store(mine.came.at(line, chunk), mask);

      // A warp for each token's routes. Those that stayed at home read -1 here, and so do those that there are not.
      const tokens = g.shared('u32', u.CHUNK);
      const wants = g.shared('u32', u.CHUNK);
      const ids = message.at(line, chunk, u.IDS).as('i32');
      const weights = message.at(line, chunk, u.WEIGHTS_AT).as('f32');
      for (let t = g.warpId; t < end; t += g.blockDim.x / 32) {
        // The rail's rank is the same member of its group.
        const token = (start + t) * u.REPLICAS + (g.rank % u.REPLICAS);
        const here = ((mask >>> t) & 1) === 1;
        let id = g.i32(-1);
        let weight = g.f32(0);
        if (here && g.laneId < u.K) {
          id = g.load(ids.at(t * u.K + g.laneId));
          if (u.WEIGHTS) weight = g.load(weights.at(t * u.K + g.laneId));
          g.store(mine.routes.at(line, start + t, g.laneId), id);
        }
        const owner = u.ownerOf({ expert: id }) - node * u.LOCAL;
        const [first, step] = [g.u32(0), g.u32(1)];
        const wanted = u.tellRoutes({ win, out, source, token, id, weight, owner, first, step });
        if (here && g.laneId === 0) {
          const place = g.popc(mask & ((g.u32(1) << t) - 1));
          g.store(tokens.at(place), token);
          g.store(wants.at(place), wanted);
        }
      }
      g.barrier();
      const count = g.popc(mask);
      for (const p of g.unroll(u.PAYLOADS)) {
        const from = message.at(line, chunk, u.ROWS + u.PAYLOADS_AT[p]!);
        const stride = u.STRIDE[p]!;
        u.storeRows[p]!({ win, from, first: g.u32(0), stride, source, tokens, wants, count });
      }
      g.barrier(); // all have read the lists, and stored their rows
    },
  );
}

function using(h: Hybrid) {
  const { shape } = h;
  const layout = dispatchMessage(shape);
  return {
    ...h.u,
    IDS: layout.ids,
    WEIGHTS_AT: layout.weights,
    ROWS: layout.rows,
    MASK: header.mask,
    PAYLOADS_AT: layout.payloads,
    STRIDE: shape.payloads.map((_, p) => (layout.row * 16) / unitBytes[unitOf(shape, p)]),
    storeRows: shape.payloads.map((_, p) => storeRows(h, p)),
    tellRoutes: tellRoutes(h),
  };
}
