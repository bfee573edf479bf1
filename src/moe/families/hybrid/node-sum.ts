/**
 * The results of a node's ranks for one token, added up in f32: the sum that goes home over the network, or that begins the
 * token's own at home.
 */
import { device, peers, record, registers } from '../../../lang/index.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, mostHeld, rowSum, sumUnit } from '../common/sum.js';
import { type HybridShape, mostOwners } from './shape.js';
import type { HybridWindow } from './window.js';

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
