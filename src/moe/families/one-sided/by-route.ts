/**
 * A row for every route on its way home, where the source weighs. It adds them up in the order of k, whatever rank they come from: so the
 * sum's bits do not depend on where experts live. Waiting and emptying is as for other rows (gather.ts).
 */
import { device, list, pointer, record, registers } from '../../../lang/index.js';
import { dtypes, outputRowBytes } from '../../layer/index.js';
import { routeParams } from '../common/params.js';
import { inOrder } from '../common/route-sum.js';
import { gatherParams, mostHeld, negativeZeros, rowSum } from '../common/sum.js';
import { gatherPushed, placeOf } from './gather.js';
import type { OneSided } from './kit.js';
import { sumParams } from './sum-piece.js';
import { sendSum } from './sums.js';
import { partVectors } from './window.js';

/**
 * One part of the rows of a token's routes that are here: bit k of `present` for route k. `to`: where the row of its route 0 goes. A route
 * without room in the plan gives −0.
 */
export function pushRoutes({ shape, u, phases }: OneSided) {
  const { dtype } = shape.output;
  return device(
    {
      params: {
        ...{ routes: record(routeParams(shape, true, false)), present: 'u32', slot: 'u32' },
        ...{ to: pointer('v16'), part: 'u32' },
      },
      using: {
        ...{ ...u, ...phases.combine, HELD: Math.min(shape.topK, 8), NEGATIVE_ZEROS: negativeZeros[dtype] },
        ...{ UNITS: outputRowBytes(shape) / 16, PART_UNITS: partVectors(shape) },
      },
    },
    (g, { routes: { made, madeRows, scatter }, present, slot, to, part }, u) => {
      const limit = madeRows[0]!;
      let row = limit;
      if (g.laneId < u.K) row = g.u32(g.load(scatter[0]!.at(slot * u.K + g.laneId)));
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      let left = present;
      while (left !== 0) {
        const count = g.popc(left);
        const ks = g.registers('u32', u.HELD);
        const places = g.registers('u32', u.HELD);
        for (const r of g.unroll(u.HELD)) {
          ks[r] = g.max(g.ffs(left), g.u32(1)) - 1;
          places[r] = g.warp.shuffle(row, ks[r]!);
          left &= left - 1;
        }
        for (let i = part * u.PART_UNITS + u.team.thread(); i < end; i += u.team.threads()) {
          const nothing = g.u32(u.NEGATIVE_ZEROS);
          const rows = g.registers('v16', u.HELD, g.pack('u32', [nothing, nothing, nothing, nothing]));
          for (const r of g.unroll(u.HELD)) {
            if (r < count && places[r]! < limit)
              rows[r] = g.load(made[0]!.as('v16').at(places[r]! * u.UNITS + i), { cache: 'stream' });
          }
          for (const r of g.unroll(u.HELD)) {
            const vector = u.filled({ vector: rows[r]! });
            const there = to.at(ks[r]! * (u.TURNS * u.UNITS) + i);
            if (r < count) g.store(there, vector, { order: 'relaxed', scope: 'sys' });
          }
        }
      }
    },
  );
}

/** As `placeOf`, with what multiplies each row. */
const placeOfRoutes = (o: OneSided) => record({ ...placeOf(o).of, scales: registers('f32') });

const gatherRoutes = (o: OneSided) =>
  device(
    { params: gatherParams(placeOfRoutes(o)), using: { gather: gatherPushed(o) } },
    (
      g,
      { at: { win, token, owners, scales: by, epoch, patience }, count, i, word, first, rows, scales },
      u,
    ) => {
      u.gather({ at: { win, token, owners, epoch, patience }, count, i, word, first, rows, scales });
      for (const r of g.unroll(rows.length)) if (first + r < by.length) scales[r] = by[first + r]!;
    },
  );

/** One part of a token's sum, where its rows are those of its routes. */
export function sumRoutes(o: OneSided) {
  const { shape, u, phases } = o;
  const { dtype } = shape.output;
  const lanes = 16 / dtypes[dtype].size;
  return device(
    {
      params: { ...sumParams(o), topkWeights: list(pointer('f32'), 1) },
      using: {
        ...{ ...u, ...phases.combine, LANES: lanes, inOrder, sendSum: sendSum(o) },
        ...{ UNITS: outputRowBytes(shape) / 16, PART_UNITS: partVectors(shape) },
        rowSum: rowSum({
          // With more rows under way, two large blocks would not fit on a multiprocessor (push.ts).
          ...{ rows: shape.topK, most: shape.combine.threads > 256 ? 4 : mostHeld(shape.topK) },
          ...{ lane: dtype, lanes, scaled: true },
          ...{ at: placeOfRoutes(o), gather: gatherRoutes(o) },
        }),
      },
    },
    (g, { win, out, topkWeights, id, token, part, epoch, patience }, u) => {
      let weight = g.f32(1);
      if (g.laneId < u.K) weight = g.load(topkWeights[0]!.at(token * u.K + g.laneId));
      const owner = u.ownerOf({ expert: id });
      const routes = g.warp.ballot(owner < u.RANKS);
      const owners = g.registers('u32', u.K);
      const scales = g.registers('f32', u.K);
      u.inOrder({ routes, row: owner * 32 + g.laneId, weight, places: owners, scales });
      const count = g.popc(routes);
      const at = { win, token, owners, scales, epoch, patience };
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + u.team.thread(); i < end; i += u.team.threads()) {
        const total = g.registers('f32', u.LANES);
        u.rowSum({ at, count, unit: i, i, word: 0, values: total });
        const vector = g.pack(u.DTYPE, total);
        u.storeSum({ to: out.as('v16').at(token * u.UNITS + i), vector });
        if (u.SHARES) u.sendSum({ win, token, i, vector });
      }
    },
  );
}
