/** One part of a token's row: what its own node made of it, then the rows of the others, node after node; a warp. */
import { device, pointer, record, registers } from '../../../lang/index.js';
import { formatOf } from '../../layer/index.js';
import { numbers } from '../common/params.js';
import { laneOf, negativeZeros, scaleOf, sumParams, sumRow, sumUnit, unitsInPart } from '../common/sum.js';
import type { Hybrid } from './kit.js';
import { combineMessage } from './messages.js';
import { nodeSum } from './node-sum.js';
import { hopsOf } from './shape.js';

/** The place that the sum of a token's rows is told. */
const tokenFields = ({ at: { win, wire } }: Hybrid) => ({
  ...{ win, wire, ...numbers('source', 'token', 'turn', 'node'), owners: registers('u32') },
});

/** `id`: the lane's route. `turn`: the rank's, in which it takes the token. */
const sumTokenParams = ({ shape, at: { win, wire } }: Hybrid) => ({
  ...{ win, wire, out: pointer(shape.output.dtype), id: 'i32' as const },
  ...numbers('token', 'turn', 'node', 'part'),
});

export function sumToken(h: Hybrid) {
  const { shape } = h;
  const part = unitsInPart(shape, shape.combine.parts);
  return device(
    {
      params: sumTokenParams(h),
      using: { ...h.u, sumRow: sumRow(shape, { at: record(tokenFields(h)), sum: sumOfUnit(h), part }) },
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

/** Rows of other nodes that are loaded before the first is added. */
const mostAtOnce = 4;

/** What this node made of a unit, then what came from other nodes: one row after another, in ascending order of nodes. */
function sumOfUnit(h: Hybrid) {
  const { shape } = h;
  const { vectors, values } = sumUnit(shape);
  const message = combineMessage(shape);
  const read = laneOf(shape);
  return device(
    {
      params: sumParams(record(tokenFields(h)), values),
      using: {
        ...h.u,
        ...{ nodeSum: nodeSum(h), GROUP: Math.min(hopsOf(shape), mostAtOnce), ROWS: message.rows },
        ...{ ROW: message.row, SCALED: formatOf(shape.output).rounding !== null, scaleOf: scaleOf(shape) },
        ...{ VECTORS: vectors, DTYPE: shape.output.dtype, LANE: read, VALUES: values },
        ABSENT: negativeZeros[read],
      },
    },
    (g, { at: { win, wire, source, token, turn, node, owners }, count, unit, i, word, values }, u) => {
      u.nodeSum({ at: { win, source, token, owners }, count, unit, values });
      const mine = win.at(g.rank);
      const chunk = turn / u.CHUNK;
      const place = turn % u.CHUNK;
      const absent = g.pack('u32', [u.ABSENT, u.ABSENT, u.ABSENT, u.ABSENT]);
      for (let first = g.u32(0); first < u.HOPS; first += u.GROUP) {
        const rows = g.registers('v16', u.GROUP, absent);
        const scales = g.registers('f32', u.GROUP, 1);
        for (const r of g.unroll(u.GROUP)) {
          // The other nodes in their order, from 0: those behind this one come one earlier.
          const other = first + r < node ? first + r : first + r + 1;
          const hop = (other + u.NODES - node - 1) % u.NODES;
          let mask = g.u32(0);
          if (first + r < u.HOPS) mask = g.load(mine.sent.at(hop, chunk));
          if (((mask >>> place) & 1) === 1) {
            const row = g.popc(mask & ((g.u32(1) << place) - 1));
            const from = wire.at(0).combineIn.at(hop, chunk, u.ROWS + row * u.ROW);
            if (u.VECTORS) rows[r] = g.load(from.at(i), { cache: 'stream' });
            else rows[r] = g.pack('f32', [g.f32(g.load(from.as(u.DTYPE).at(i))), 0, 0, 0]);
            if (u.SCALED) scales[r] = u.scaleOf({ word: g.load(from.as('u32').at(word)) });
          }
        }
        for (const r of g.unroll(u.GROUP)) {
          for (const lane of g.unroll(u.VALUES)) {
            let value = g.f32(g.lane(rows[r]!, u.LANE, lane));
            if (u.SCALED) value *= scales[r]!;
            values[lane]! += value;
          }
        }
      }
    },
  );
}
