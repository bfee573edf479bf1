/**
 * One part of a token's row where all rows come to the source: added up in the order of one node, those of this rank's own
 * node from its windows, the others as they came; a warp.
 */
import { device, peers, pointer, record, registers, windowOf } from '../../../lang/index.js';
import { findOwners } from '../common/owners.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, rowSum } from '../common/sum.js';
import { combineMessage } from './messages.js';
import { sumUnit } from './node-sum.js';
import { type HybridShape, sourceOf } from './shape.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

/** A token has rows on so many ranks at most. */
const mostRows = ({ topK, ranks }: HybridShape): number => Math.min(topK, ranks);

export function sumAtSource(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  const { units, vectors, lanes } = sumUnit(shape);
  const rows = mostRows(shape);
  const { dtype } = shape.output;
  return device(
    {
      name: 'sum_at_source',
      params: {
        win: peers(window),
        wire: peers(wire),
        out: pointer(dtype),
        /** The lane's route. */
        id: 'i32',
        token: 'u32',
        turn: 'u32',
        node: 'u32',
        part: 'u32',
      },
      using: {
        ROWS: rows,
        LOCAL: shape.localRanks,
        UNITS: units,
        PART_UNITS: Math.ceil(units / shape.combine.parts),
        VECTORS: vectors,
        LANES: lanes,
        DTYPE: dtype,
        findOwners: findOwners(shape),
        placesOf: placesOf(shape, window),
        sourceOf: sourceOf(shape),
        rowSum: rowSum({
          rows,
          most: rows > 8 ? 4 : 8,
          lane: vectors ? dtype : 'f32',
          lanes,
          at: placeOf(window, wire),
          gather: gather(shape, window, wire),
        }),
      },
    },
    (g, { win, wire, out, id, token, turn, node, part }, u) => {
      const owners = g.registers('u32', u.ROWS);
      const count = u.findOwners({ expert: id, owners });
      const places = g.registers('u32', u.ROWS);
      u.placesOf({ mine: win.at(g.rank), turn, node, owners, count, places });
      const source = u.sourceOf({ rank: node * u.LOCAL + g.rank });
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + g.laneId; i < end; i += 32) {
        const total = g.registers('f32', u.LANES);
        u.rowSum({ at: { win, wire, source, token, turn, node, i, owners, places, count }, count, total });
        const to = token * u.UNITS + i;
        if (u.VECTORS) g.store(out.as('v16').at(to), g.pack(u.DTYPE, total), { cache: 'stream' });
        else g.store(out.at(to), g.convert(u.DTYPE, total[0]!));
      }
    },
  );
}

/** The rows of a token's owners on other nodes: which of those in the message, that of owner r in places[r]. */
const placesOf = (shape: HybridShape, window: HybridWindow) =>
  device(
    {
      name: 'places_of',
      params: {
        mine: windowOf(window),
        turn: 'u32',
        node: 'u32',
        owners: registers('u32'),
        count: 'u32',
        places: registers('u32'),
      },
      using: { NODES: shape.nodes, LOCAL: shape.localRanks },
    },
    (g, { mine, turn, node, owners, count, places }, u) => {
      // Lane r is owner r's. Those of a node lie in its message in the order in which they are here.
      let there = g.u32(u.NODES);
      for (const r of g.unroll(owners.length)) {
        if (g.laneId === r && r < count) there = owners[r]! / u.LOCAL;
      }
      let place = g.popc(g.warp.match(there) & ((g.u32(1) << g.laneId) - 1));
      if (g.laneId < count && there !== node)
        place += g.load(mine.expected.at((there + u.NODES - node - 1) % u.NODES, turn));
      for (const r of g.unroll(places.length)) places[r] = g.warp.shuffle(place, r);
    },
  );

const placeOf = (window: HybridWindow, wire: HybridWire) =>
  record({
    win: peers(window),
    wire: peers(wire),
    source: 'u32',
    token: 'u32',
    turn: 'u32',
    node: 'u32',
    i: 'u32',
    owners: registers('u32'),
    places: registers('u32'),
    count: 'u32',
  });

function gather(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  const { rows, row } = combineMessage(shape);
  return device(
    {
      name: 'gather_from_all',
      params: gatherParams(placeOf(window, wire)),
      using: {
        VECTORS: sumUnit(shape).vectors,
        DTYPE: partialDtype(shape),
        NODES: shape.nodes,
        LOCAL: shape.localRanks,
        CHUNK: shape.dispatch.chunk,
        ROWS_AT: rows,
        ROW: row,
      },
    },
    (g, { at: { win, wire, source, token, turn, node, i, owners, places, count }, first, rows }, u) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          if (first + r < count) {
            const owner = owners[first + r]!;
            const hop = (owner / u.LOCAL + u.NODES - node - 1) % u.NODES;
            let row = win
              .at(owner % u.LOCAL)
              .output.at(source, token, 0)
              .as('v16');
            if (hop < u.NODES - 1)
              row = wire.at(0).combineIn.at(hop, turn / u.CHUNK, u.ROWS_AT + places[first + r]! * u.ROW);
            if (u.VECTORS) rows[r] = g.load(row.at(i));
            else rows[r] = g.pack('f32', [g.f32(g.load(row.as(u.DTYPE).at(i))), 0, 0, 0]);
          }
        }
      }
    },
  );
}
