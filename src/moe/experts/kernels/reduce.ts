/**
 * Reduce: from the rows that the experts made, one a route, the one row of a slot that travels back: Σ weight · row over
 * the slot's routes in order of k, in f32, as the tree of docs/semantics.md. So the same rows give the same bits as
 * where combine applies the weights.
 */
import { device, kernel, pointer, record, registers } from '../../../lang/index.js';
import { rowsOf } from '../../families/common/received.js';
import { gatherParams, rowSum } from '../../families/common/sum.js';
import { type ExpertsShape, type ExpertsSpread, slotsOf } from './shape.js';

export function reduceKernel(
  { layer }: ExpertsShape,
  { threads, parts }: ExpertsSpread & { readonly parts: number },
) {
  const { dtype } = layer.output;
  const { vectors, lanes, units } = rowsOf(layer, dtype);
  return kernel(
    {
      name: 'experts_reduce',
      maxThreads: threads,
      params: {
        /** [slot][k]: ids and weights as they arrived, and the route's row; −1 where it has none. */
        ids: pointer('i32'),
        weights: pointer('f32'),
        scatter: pointer('i32'),
        /** [row][hidden] */
        from: pointer(dtype),
        /** [slot][hidden] */
        to: pointer(dtype),
        /** There are so many rows; a larger index counts as none. */
        rows: 'u32',
      },
      using: {
        K: layer.topK,
        WEIGHTS: layer.weights,
        PARTS: parts,
        PIECES: slotsOf(layer) * parts,
        DTYPE: dtype,
        VECTORS: vectors,
        LANES: lanes,
        UNITS: units,
        PART_UNITS: Math.ceil(units / parts),
        inOrder,
        rowSum: rowSum({
          rows: layer.topK,
          lane: vectors ? dtype : 'f32',
          lanes,
          scaled: layer.weights,
          at: routesAt(dtype),
          gather: gatherRoutes(layer),
        }),
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
          if (u.WEIGHTS) weight = g.load(weights.at(slot * u.K + g.laneId));
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
            u.rowSum({ at: { from, i, count, places, scales }, count, unit: i, i, word: 0, values: total });
            const at = slot * u.UNITS + i;
            if (u.VECTORS) g.store(to.as('v16').at(at), g.pack(u.DTYPE, total));
            else g.store(to.at(at), g.convert(u.DTYPE, total[0]!));
          }
        }
      }
    },
  );
}

/** The rows and weights that the lanes in `routes` hold, one behind the other in every lane. */
const inOrder = device(
  {
    name: 'in_order',
    params: {
      routes: 'u32',
      row: 'u32',
      weight: 'f32',
      places: registers('u32'),
      scales: registers('f32'),
    },
  },
  (g, { routes, row, weight, places, scales }) => {
    let left = routes;
    for (const r of g.unroll(places.length)) {
      const lane = g.max(g.ffs(left), g.u32(1)) - 1;
      places[r] = g.warp.shuffle(row, lane);
      scales[r] = g.warp.shuffle(weight, lane);
      left &= left - 1;
    }
  },
);

type Dtype = ExpertsShape['layer']['output']['dtype'];

/** One vector of a slot's sum. The first `count` of `places` and `scales` are its routes', in their order. */
const routesAt = (dtype: Dtype) =>
  record({
    from: pointer(dtype),
    i: 'u32',
    count: 'u32',
    places: registers('u32'),
    scales: registers('f32'),
  });

function gatherRoutes(layer: ExpertsShape['layer']) {
  const { dtype } = layer.output;
  const { vectors, units } = rowsOf(layer, dtype);
  return device(
    {
      name: 'gather_routes',
      params: gatherParams(routesAt(dtype)),
      using: { UNITS: units, VECTORS: vectors },
    },
    (g, { at: { from, i, count, places, scales: by }, first, rows, scales }, { UNITS, VECTORS }) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < places.length) {
          if (first + r < count) {
            const at = places[first + r]! * UNITS + i;
            if (VECTORS) rows[r] = g.load(from.as('v16').at(at), { cache: 'stream' });
            else rows[r] = g.pack('f32', [g.f32(g.load(from.at(at))), 0, 0, 0]);
            scales[r] = by[first + r]!;
          }
        }
      }
    },
  );
}
