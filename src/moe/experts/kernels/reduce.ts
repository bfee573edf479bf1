/**
 * Reduce: from the rows that the experts made, one a route, the one row of a slot that travels back: Σ weight · row over
 * the slot's routes in order of k, in f32, as the tree of docs/semantics.md. So the same rows give the same bits as
 * where combine applies the weights.
 */
import { kernel, list, pointer } from '../../../lang/index.js';
import type { Spread } from '../../families/common/parts.js';
import { rowsOf } from '../../families/common/received.js';
import { inOrder, routeSum } from '../../families/common/route-sum.js';
import { type ExpertsShape, slotsOf } from './shape.js';

export function reduceKernel({ layer }: ExpertsShape, { threads, parts }: Spread) {
  const { dtype } = layer.output;
  const { vectors, lanes, units } = rowsOf(layer, dtype);
  return kernel(
    {
      name: 'experts_reduce',
      maxThreads: threads,
      params: {
        /** [slot][k]: ids and weights as they arrived, and the route's row; −1 where it has none. */
        ids: pointer('i32'),
        weights: list(pointer('f32'), layer.weights ? 1 : 0),
        scatter: pointer('i32'),
        /** [row][hidden] */
        from: pointer(dtype),
        /** [slot][hidden] */
        to: pointer(dtype),
        /** There are so many rows; a larger index counts as none. */
        rows: 'u32',
      },
      using: {
        ...{ K: layer.topK, PARTS: parts, PIECES: slotsOf(layer) * parts, DTYPE: dtype, VECTORS: vectors },
        ...{ LANES: lanes, UNITS: units, PART_UNITS: Math.ceil(units / parts) },
        ...{ inOrder, routeSum: routeSum(layer) },
      },
    },
    (g, { ids, weights, scatter, from, to, rows }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      for (let piece = g.blockIdx.x; piece < u.PIECES; piece += g.gridDim.x) {
        const slot = piece / u.PARTS;
        const part = piece % u.PARTS;
        let id = g.i32(-1);
        let weight = g.f32(1);
        let row = rows;
        if (g.laneId < u.K) {
          id = g.load(ids.at(slot * u.K + g.laneId));
          row = g.u32(g.load(scatter.at(slot * u.K + g.laneId)));
          if (weights.length > 0) weight = g.load(weights[0]!.at(slot * u.K + g.laneId));
        }
        // A token whose routes found no rows travels all the same.
        if (g.warp.any(id >= 0)) {
          const routes = g.warp.ballot(row < rows);
          const places = g.registers('u32', u.K);
          const scales = g.registers('f32', u.K);
          u.inOrder({ routes, row, weight, places, scales });
          const count = g.popc(routes);
          const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
          for (let i = part * u.PART_UNITS + g.threadIdx.x; i < end; i += g.blockDim.x) {
            const total = g.registers('f32', u.LANES);
            u.routeSum({ at: { from, places, scales }, count, unit: i, i, word: 0, values: total });
            const at = slot * u.UNITS + i;
            if (u.VECTORS) g.store(to.as('v16').at(at), g.pack(u.DTYPE, total));
            else g.store(to.at(at), g.convert(u.DTYPE, total[0]!));
          }
        }
      }
    },
  );
}
