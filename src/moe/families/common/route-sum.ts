/**
 * The row of a slot, made of the rows that experts left for its routes: Σ weight · row in order of k, in f32, as the tree of
 * docs/semantics.md. One function for all kernels that make such rows, so that they make the same bits.
 */
import { device, pointer, record, registers } from '../../../lang/index.js';
import type { Layer, RowDtype } from '../../layer/index.js';
import { rowsOf } from './received.js';
import { gatherParams, rowSum } from './sum.js';

/** The rows and weights that the lanes in `routes` hold, one behind the other in every lane. */
export const inOrder = device(
  {
    params: { routes: 'u32', row: 'u32', weight: 'f32', places: registers('u32'), scales: registers('f32') },
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

/** Where the rows are; of each route of a slot, in order of k, its row and what multiplies that. */
const routesAt = (dtype: RowDtype) =>
  record({ from: pointer(dtype), places: registers('u32'), scales: registers('f32') });

/** Adds up one vector of a slot's routes; one value where rows are no whole vectors. `most`: the rows that a thread holds at once. */
export function routeSum(layer: Layer, most?: number) {
  const { dtype } = layer.output;
  const { vectors, lanes } = rowsOf(layer, dtype);
  return rowSum({
    rows: layer.topK,
    ...(most !== undefined && { most }),
    lane: vectors ? dtype : 'f32',
    lanes,
    scaled: layer.weights,
    at: routesAt(dtype),
    gather: gatherRoutes(layer),
  });
}

function gatherRoutes(layer: Layer) {
  const { dtype } = layer.output;
  const { vectors, units } = rowsOf(layer, dtype);
  return device(
    { params: gatherParams(routesAt(dtype)), using: { UNITS: units, VECTORS: vectors } },
    (g, { at: { from, places, scales: by }, count, i, first, rows, scales }, { UNITS, VECTORS }) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < places.length && first + r < count) {
          const at = places[first + r]! * UNITS + i;
          if (VECTORS) rows[r] = g.load(from.as('v16').at(at), { cache: 'stream' });
          else rows[r] = g.pack('f32', [g.f32(g.load(from.at(at))), 0, 0, 0]);
          scales[r] = by[first + r]!;
        }
      }
    },
  );
}
