/** A chunk that came from another node goes on to its owners in this one; a block. */
import { device, peers, pointer, record, windowOf } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { tokenOf } from '../common/groups.js';
import { rowsBefore } from '../common/lanes.js';
import { partsOf, unitBytes } from '../common/parts.js';
import { storeRows, tellRoutes } from './deliver.js';
import { dispatchMessage, header } from './messages.js';
import { type HybridShape, localOwner, railRank, sourceOf, sumsAtSource } from './shape.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

export function forwardChunk(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  const message = dispatchMessage(shape);
  return device(
    {
      name: 'forward_chunk',
      params: { win: peers(window), wire: peers(wire), node: 'u32', hop: 'u32', chunk: 'u32' },
      using: {
        K: shape.topK,
        CHUNK: shape.dispatch.chunk,
        TURNS: sharing(shape).turns,
        PAYLOADS: shape.payloads.length,
        AT_SOURCE: sumsAtSource(shape),
        IDS: message.ids,
        WEIGHTS_AT: message.weights,
        ROWS: message.rows,
        cameOf: cameOf(shape, window, wire),
        countOwed: countOwed(shape, window),
        PAYLOADS_AT: message.payloads,
        STRIDE: shape.payloads.map((payload) => (message.row * 16) / unitBytes[partsOf(payload, 1).unit]),
        localOwner: localOwner(shape),
        railRank: railRank(shape),
        routeAt: routeAt(shape),
        sourceOf: sourceOf(shape),
        storeRows: shape.payloads.map((_, p) => storeRows(shape, window, p)),
        tellRoutes: tellRoutes(shape, window),
        tokenOf: tokenOf(shape),
      },
    },
    (g, { win, wire, node, hop, chunk }, u) => {
      const mine = win.at(g.rank);
      const source = u.sourceOf({ rank: u.railRank({ node, hop }) });
      const first = chunk * u.CHUNK;
      const message = wire.at(0).dispatchIn;
      const end = g.min(g.u32(u.CHUNK), u.TURNS - first);
      const mask = u.cameOf({ mine, wire, hop, chunk, end });
      if (g.threadIdx.x === 0) g.store(mine.came.at(hop, chunk), mask);

      // A warp for each token's routes. Those that stayed at home read -1 here, and so do those that there are not.
      const tokens = g.shared('u32', u.CHUNK);
      const wants = g.shared('u32', u.CHUNK);
      const ids = message.at(hop, chunk, u.IDS).as('i32');
      const weights = message.at(hop, chunk, u.WEIGHTS_AT).as('f32');
      for (let t = g.warpId; t < end; t += g.blockDim.x / 32) {
        const token = u.tokenOf({ turn: first + t }); // the rail's rank is the same member of its group
        const here = ((mask >>> t) & 1) === 1;
        const { id, weight } = u.routeAt({ ids, weights, t, here });
        if (here && g.laneId < u.K) g.store(mine.routes.at(hop, first + t, g.laneId), id);
        const owner = u.localOwner({ expert: id, node });
        const wanted = u.tellRoutes({
          win,
          source,
          token,
          id,
          weight,
          owner,
          first: g.u32(0),
          step: g.u32(1),
        });
        if (here && g.laneId === 0) {
          const place = g.popc(mask & ((g.u32(1) << t) - 1));
          g.store(tokens.at(place), token);
          g.store(wants.at(place), wanted);
        }
      }
      g.barrier();
      const count = g.popc(mask);
      if (u.AT_SOURCE && g.warpId === 0) u.countOwed({ mine, hop, chunk, wants, count });
      for (const p of g.unroll(u.PAYLOADS)) {
        const from = message.at(hop, chunk, u.ROWS + u.PAYLOADS_AT[p]!);
        const stride = u.STRIDE[p]!;
        u.storeRows[p]!({ win, from, first: g.u32(0), stride, source, tokens, wants, count });
      }
      g.barrier(); // all have read the lists, and stored their rows
    },
  );
}

/** A bit for each of the chunk's tokens that has come: one of the first `end`. */
const cameOf = (shape: HybridShape, window: HybridWindow, wire: HybridWire) =>
  device(
    {
      name: 'came_of',
      params: { mine: windowOf(window), wire: peers(wire), hop: 'u32', chunk: 'u32', end: 'u32' },
      returns: 'u32',
      using: { CHUNK: shape.dispatch.chunk, MASK: header.mask },
    },
    (g, { mine, wire, hop, chunk, end }, u) => {
      // A chunk that does not exist holds bytes of an old round. A bit beyond the last token would become an address: the
      // proxy has looked, but whoever wrote the message may do so again.
      const possible = g.u32(0xffffffff) >>> (32 - end);
      let mask = g.u32(0);
      if (chunk * u.CHUNK < g.load(mine.tokens.at(hop)))
        mask = g.load(wire.at(0).dispatchIn.at(hop, chunk, 0).as('u32').at(u.MASK)) & possible;
      return mask;
    },
  );

/** Route k of the chunk's token t, in lane k; none for a token that is not here. */
const routeAt = (shape: HybridShape) =>
  device(
    {
      name: 'route_at',
      params: { ids: pointer('i32'), weights: pointer('f32'), t: 'u32', here: 'bool' },
      returns: record({ id: 'i32', weight: 'f32' }),
      using: { K: shape.topK, WEIGHTS: shape.weights },
    },
    (g, { ids, weights, t, here }, u) => {
      let id = g.i32(-1);
      let weight = g.f32(0);
      if (here && g.laneId < u.K) {
        id = g.load(ids.at(t * u.K + g.laneId));
        if (u.WEIGHTS) weight = g.load(weights.at(t * u.K + g.laneId));
      }
      return { id, weight };
    },
  );

/** Where the rows of the chunk's tokens will lie in the message home, if each owner's goes: one warp. `wants`: who they are. */
const countOwed = (shape: HybridShape, window: HybridWindow) =>
  device(
    {
      name: 'count_owed',
      params: { mine: windowOf(window), hop: 'u32', chunk: 'u32', wants: pointer('u32'), count: 'u32' },
      using: { CHUNK: shape.dispatch.chunk, rowsBefore },
    },
    (g, { mine, hop, chunk, wants, count }, u) => {
      let rows = g.u32(0);
      if (g.laneId < count) rows = g.popc(g.load(wants.at(g.laneId)));
      const before = u.rowsBefore({ rows });
      if (g.laneId < count) g.store(mine.returningFrom.at(hop, chunk * u.CHUNK + g.laneId), before);
      if (g.laneId === 31) g.store(mine.returningRows.at(hop, chunk), before + rows);
    },
  );
