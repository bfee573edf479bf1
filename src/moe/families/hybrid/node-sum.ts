/**
 * The results of a node's ranks for one token, added up in f32: the sum that goes home over the network, or that begins the
 * token's own at home.
 */
import { device, record, registers } from '../../../lang/index.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, mostHeld, rowSum, sumUnit } from '../common/sum.js';
import type { Hybrid } from './kit.js';
import { mostOwners } from './shape.js';

/** The first `count` of `owners` are this token's owners in the node, in the order of the sum. */
const placeOf = ({ at: { win } }: Hybrid) =>
  record({ win, source: 'u32', token: 'u32', owners: registers('u32') });

/** The sum of a unit of a token's rows. */
export function nodeSum(h: Hybrid) {
  const { shape } = h;
  const { vectors, lanes, loads, values } = sumUnit(shape);
  const rows = mostOwners(shape);
  const at = placeOf(h);
  // A row that is no whole vectors comes value by value, in the first lane.
  const read = vectors ? partialDtype(shape) : 'f32';
  return device(
    {
      params: { at, count: 'u32', unit: 'u32', values: registers('f32', values) },
      using: {
        ...{ LOADS: loads, LANES: lanes },
        rowSum: rowSum({ rows, most: mostHeld(rows), lane: read, lanes, at, gather: gather(h) }),
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
const gather = (h: Hybrid) =>
  device(
    {
      params: gatherParams(placeOf(h)),
      using: { VECTORS: sumUnit(h.shape).vectors, DTYPE: partialDtype(h.shape) },
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
