/** One tile from its rows to its rows: where they are, their sums, and where those go. */
import { device, list, pointer, record } from '../../../../lang/index.js';
import { findSources, findWeights } from './find.js';
import { multiplyTile } from './multiply.js';
import { type GemmShape, type GemmTile, tileSizes } from './shape.js';
import { addBiases, storeTile } from './store.js';

export const pointersOf = ({ rows, dtype, bias }: GemmShape) => ({
  /** [row]: its route, where rows are gathered. */
  routes: list(pointer('i32'), rows === 'gathered' ? 1 : 0),
  /** Rows that come in; [expert][out][in]; rows that go out, in the order of the plan. */
  from: pointer('v16'),
  weights: pointer('bf16'),
  to: pointer('bf16'),
  /** Of rows as e4m3, one for every 128 elements. */
  scales: list(pointer('f32'), dtype === 'e4m3' ? 1 : 0),
  /** [expert][out] */
  bias: list(pointer('bf16'), bias ? 1 : 0),
});

/** The expert of a tile, its first row, that many of the expert from there on, and which of those beside each other. */
const tilePlace = record({ expert: 'u32', row: 'u32', rows: 'u32', across: 'u32' });

export function makeTile(shape: GemmShape, tile: GemmTile) {
  const sizes = tileSizes(shape, tile);
  return device(
    {
      params: { stages: pointer('v16'), pointers: record(pointersOf(shape)), place: tilePlace },
      using: {
        MADE: sizes.made,
        SOURCES: sizes.sources,
        SUMS: 2 * sizes.rowParts * sizes.columnParts,
        findSources: findSources(shape, sizes),
        findWeights: findWeights(shape, sizes),
        multiplyTile: multiplyTile(shape, tile, sizes),
        addBiases: addBiases(shape, tile, sizes),
        storeTile: storeTile(shape, tile, sizes),
      },
    },
    (
      g,
      { stages, pointers: { routes, from, scales, weights, to, bias }, place: { expert, row, rows, across } },
      u,
    ) => {
      const sources = g.registers('u32', u.SOURCES);
      u.findSources({ routes, row, rows, sources });
      const column = u.findWeights({ expert, across });
      const sums = g.registers('v16', u.SUMS);
      const inputs = { from, scales, weights: weights.as('v16'), sources, column, rows };
      u.multiplyTile({ stages, inputs, sums });
      if (bias.length > 0) u.addBiases({ bias: bias[0]!, expert, element: across * u.MADE, sums });
      u.storeTile({ to, row, rows, element: across * u.MADE, sums });
    },
  );
}
