/**
 * One part of a token's row where all rows come to the source: added up in the order of one node, those of this rank's own
 * node from its windows, the others as they came; a warp.
 */
import { device, record, registers } from '../../../lang/index.js';
import { findOwners, mostRows } from '../common/owners.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, rowSum, sumRow, sumUnit, travelled, unitsInPart } from '../common/sum.js';
import type { Hybrid } from './kit.js';
import { combineMessage } from './messages.js';
import { sumTokenParams, tokenFields } from './sum-token.js';

export function sumAtSource(h: Hybrid) {
  const { shape } = h;
  const at = rowsOfToken(h);
  const held = travelled(shape, mostRows(shape), sumUnit(shape).values);
  const sum = rowSum({ ...held, at, gather: gather(h) });
  return device(
    {
      params: sumTokenParams(h),
      using: {
        ...h.u,
        ROWS: mostRows(shape),
        findOwners: findOwners(shape),
        sumRow: sumRow(shape, { at, sum, part: unitsInPart(shape, shape.combine.parts) }),
      },
    },
    (g, { win, wire, out, id, token, turn, node, part }, u) => {
      const owners = g.registers('u32', u.ROWS);
      const count = u.findOwners({ expert: id, owners });
      // The rows of owners on other nodes: which of those in the message, that of owner r in places[r]. Lane r is owner r's; those of
      // a node lie in its message in the order in which they are here.
      let there = g.u32(u.NODES);
      for (const r of g.unroll(u.ROWS)) {
        if (g.laneId === r && r < count) there = owners[r]! / u.LOCAL;
      }
      let place = g.popc(g.warp.match(there) & ((g.u32(1) << g.laneId) - 1));
      if (g.laneId < count && there !== node)
        place += g.load(win.at(g.rank).expected.at((there + u.NODES - node - 1) % u.NODES, turn));
      const places = g.registers('u32', u.ROWS);
      for (const r of g.unroll(u.ROWS)) places[r] = g.warp.shuffle(place, r);
      const source = (node * u.LOCAL + g.rank) / u.REPLICAS;
      const at = { win, wire, source, token, turn, node, owners, places };
      u.sumRow({ at, count, out, token, part });
    },
  );
}

const rowsOfToken = (h: Hybrid) => record({ ...tokenFields(h), places: registers('u32') });

function gather(h: Hybrid) {
  const { shape } = h;
  const { rows, row } = combineMessage(shape);
  const { vectors } = sumUnit(shape);
  return device(
    {
      params: gatherParams(rowsOfToken(h)),
      using: { ...h.u, VECTORS: vectors, DTYPE: partialDtype(shape), ROWS_AT: rows, ROW: row },
    },
    (g, { at: { win, wire, source, token, turn, node, owners, places }, count, i, first, rows }, u) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length && first + r < count) {
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
    },
  );
}
