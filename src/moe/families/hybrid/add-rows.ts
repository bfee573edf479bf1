/** Adds to a token's sum the rows that came from other nodes: one after another, in ascending order of nodes. */
import { device, peers, registers, windowOf } from '../../../lang/index.js';
import { formatOf } from '../../layer/index.js';
import { laneOf, negativeZeros, scaleOf } from '../common/sum.js';
import { sumUnit } from '../common/sum-row.js';
import { combineMessage } from './messages.js';
import { type HybridShape, hopsOf } from './shape.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

/** Rows that are loaded before the first is added. */
const mostAtOnce = 4;

export function addRows(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  const { vectors, values } = sumUnit(shape);
  const lane = laneOf(shape);
  const { rows, row } = combineMessage(shape);
  return device(
    {
      name: 'add_rows',
      params: {
        mine: windowOf(window),
        wire: peers(wire),
        /** In which this rank takes the token. */
        turn: 'u32',
        node: 'u32',
        /** Of the unit in a row: its vector, or value; and its word of scales, if any. */
        i: 'u32',
        word: 'u32',
        values: registers('f32', values),
      },
      using: {
        NODES: shape.nodes,
        HOPS: hopsOf(shape),
        GROUP: Math.min(hopsOf(shape), mostAtOnce),
        CHUNK: shape.dispatch.chunk,
        ROWS: rows,
        ROW: row,
        SCALED: formatOf(shape.output).rounding !== null,
        scaleOf: scaleOf(shape),
        VECTORS: vectors,
        DTYPE: shape.output.dtype,
        LANE: lane,
        VALUES: values,
        ABSENT: negativeZeros[lane],
      },
    },
    (g, { mine, wire, turn, node, i, word, values }, u) => {
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
