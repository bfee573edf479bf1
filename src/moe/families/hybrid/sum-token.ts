/** One part of a token's row: what its own node made of it, then the rows of the others, node after node; a warp. */
import { device, peers, pointer, record, registers } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { expertOwner, listOwners } from '../common/owners.js';
import { sumParams, sumRow, sumUnit, unitsInPart } from '../common/sum.js';
import { addRows, nodeSum } from './node-sum.js';
import { type HybridShape, mostOwners } from './shape.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

/** The place that the sum of a token's rows is told. */
export const tokenFields = (window: HybridWindow, wire: HybridWire) =>
  ({
    win: peers(window),
    wire: peers(wire),
    source: 'u32',
    token: 'u32',
    turn: 'u32',
    node: 'u32',
    owners: registers('u32'),
  }) as const;

export const sumTokenParams = (shape: HybridShape, window: HybridWindow, wire: HybridWire) =>
  ({
    win: peers(window),
    wire: peers(wire),
    out: pointer(shape.output.dtype),
    /** The lane's route. */
    id: 'i32',
    token: 'u32',
    /** The rank's, in which it takes the token. */
    turn: 'u32',
    node: 'u32',
    part: 'u32',
  }) as const;

export function sumToken(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  return device(
    {
      params: sumTokenParams(shape, window, wire),
      using: {
        LOCAL: shape.localRanks,
        OWNERS: mostOwners(shape),
        REPLICAS: sharing(shape).replicas,
        listOwners,
        ownerOf: expertOwner(shape),
        sumRow: sumRow(shape, {
          at: record(tokenFields(window, wire)),
          sum: sumOfUnit(shape, window, wire),
          part: unitsInPart(shape, shape.combine.parts),
        }),
      },
    },
    (g, { win, wire, out, id, token, turn, node, part }, u) => {
      const owners = g.registers('u32', u.OWNERS);
      const owner = u.ownerOf({ expert: id }) - node * u.LOCAL;
      const count = u.listOwners({ owner, ranks: u.LOCAL, owners });
      const source = (node * u.LOCAL + g.rank) / u.REPLICAS;
      u.sumRow({ at: { win, wire, source, token, turn, node, owners }, count, out, token, part });
    },
  );
}

const sumOfUnit = (shape: HybridShape, window: HybridWindow, wire: HybridWire) =>
  device(
    {
      params: sumParams(record(tokenFields(window, wire)), sumUnit(shape).values),
      using: { addRows: addRows(shape, window, wire), nodeSum: nodeSum(shape, window) },
    },
    (g, { at: { win, wire, source, token, turn, node, owners }, count, unit, i, word, values }, u) => {
      u.nodeSum({ at: { win, source, token, owners }, count, unit, values });
      u.addRows({ mine: win.at(g.rank), wire, turn, node, i, word, values });
    },
  );
