/**
 * The results of a node's ranks for one token, added up in f32: the sum that goes home over the network, or that begins the
 * token's own at home.
 */
import { device, peers, record, registers, windowOf } from '../../../lang/index.js';
import { formatOf } from '../../layer/index.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, laneOf, mostHeld, negativeZeros, rowSum, scaleOf, sumUnit } from '../common/sum.js';
import { combineMessage } from './messages.js';
import { type HybridShape, hopsOf, mostOwners } from './shape.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

const placeOf = (window: HybridWindow) =>
  record({
    win: peers(window),
    source: 'u32',
    token: 'u32',
    /** The first `count` are this token's owners in the node, in the order of the sum. */
    owners: registers('u32'),
  });

/** The sum of a unit of a token's rows. */
export function nodeSum(shape: HybridShape, window: HybridWindow) {
  const { vectors, lanes, loads, values } = sumUnit(shape);
  const rows = mostOwners(shape);
  return device(
    {
      params: { at: placeOf(window), count: 'u32', unit: 'u32', values: registers('f32', values) },
      using: {
        LOADS: loads,
        LANES: lanes,
        rowSum: rowSum({
          rows,
          most: mostHeld(rows),
          // A row that is no whole vectors comes value by value, in the first lane.
          lane: vectors ? partialDtype(shape) : 'f32',
          lanes,
          at: placeOf(window),
          gather: gather(shape, window),
        }),
      },
    },
    (g, { at, count, unit, values }, u) => {
      for (const v of g.unroll(u.LOADS)) {
        const total = g.registers('f32', u.LANES);
        const i = unit * u.LOADS + v;
        u.rowSum({ at, count, unit, i, word: 0, values: total });
        for (const lane of g.unroll(u.LANES)) values[v * u.LANES + lane] = total[lane]!;
      }
    },
  );
}

/** Loads from the node's ranks. */
const gather = (shape: HybridShape, window: HybridWindow) =>
  device(
    {
      params: gatherParams(placeOf(window)),
      using: { VECTORS: sumUnit(shape).vectors, DTYPE: partialDtype(shape) },
    },
    (g, { at: { win, source, token, owners }, count, i, first, rows }, u) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length && first + r < count) {
          const there = win.at(owners[first + r]!).output.at(source, token, i);
          if (u.VECTORS) rows[r] = g.load(there.as('v16'));
          else rows[r] = g.pack('f32', [g.f32(g.load(there.as(u.DTYPE))), 0, 0, 0]);
        }
      }
    },
  );

/** Rows that are loaded before the first is added. */
const mostAtOnce = 4;

/** Adds to a token's sum the rows that came from other nodes: one after another, in ascending order of nodes. */
export function addRows(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  const { vectors, values } = sumUnit(shape);
  const lane = laneOf(shape);
  const { rows, row } = combineMessage(shape);
  return device(
    {
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
