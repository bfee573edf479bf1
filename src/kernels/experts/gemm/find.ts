/** Which tiles there are, and where a thread finds what it loads of one. */
import { device, pointer, registers } from '../../../lang/index.js';
import { sumUpTo } from '../sum-up-to.js';
import { type GemmShape, type GemmTile, stageUnits, type TileSizes } from './shape.js';

/** Of a block's first tile, before anything is known of the rows. */
const prefetchedSteps = 8;

/** Counts tiles of rows, up to each expert. One warp. */
export const endTiles = ({ rows, experts }: GemmShape, tile: GemmTile) =>
  device(
    {
      name: 'end_tiles',
      params: { counts: pointer('u32'), count: 'u32', ends: pointer('u32') },
      using: { EXPERTS: experts, ALL: rows === 'all', ROWS: tile.rows, sumUpTo },
    },
    (g, { counts, count, ends }, u) => {
      let before = g.u32(0);
      for (let base = g.u32(0); base < u.EXPERTS; base += 32) {
        const e = base + g.laneId;
        let rows = g.u32(0);
        if (e < u.EXPERTS) rows = u.ALL ? count : g.load(counts.at(e));
        const end = before + u.sumUpTo({ value: (rows + u.ROWS - 1) / u.ROWS });
        before = g.warp.shuffle(end, 31);
        if (e < u.EXPERTS) g.store(ends.at(e), end);
      }
    },
  );

/** The first vector of each row that this thread loads. Behind the last row it loads the last one again. */
export const findSources = ({ rows, topK }: GemmShape, sizes: TileSizes) =>
  device(
    {
      name: 'find_sources',
      params: { routes: pointer('i32'), first: 'u32', rows: 'u32', sources: registers('u32') },
      using: {
        GATHERED: rows === 'gathered',
        K: topK,
        U: stageUnits,
        APART: sizes.rowsApart,
        INPUT_UNITS: sizes.inputUnits,
      },
    },
    (g, { routes, first, rows, sources }, u) => {
      for (const i of g.unroll(sources.length)) {
        let row = first + g.min(g.threadIdx.x / u.U + i * u.APART, rows - 1);
        if (u.GATHERED) row = g.u32(g.load(routes.at(row))) / u.K;
        sources[i] = row * u.INPUT_UNITS + (g.threadIdx.x % u.U);
      }
    },
  );

/** The first vector of a tile's row of weights. Of 16 rows 8 are gates. */
export const findWeights = ({ outputs, gated }: GemmShape, { made, inputUnits }: TileSizes) =>
  device(
    {
      name: 'find_weights',
      params: { expert: 'u32', across: 'u32', row: 'u32' },
      returns: 'u32',
      using: { GATED: gated, OUTPUTS: outputs, MADE: made, INPUT_UNITS: inputUnits },
    },
    (_, { expert, across, row }, u) => {
      let column = expert * u.OUTPUTS + across * u.MADE + row;
      if (u.GATED) {
        const plane = 2 * expert + ((row / 8) % 2);
        column = plane * u.OUTPUTS + across * u.MADE + (row / 16) * 8 + (row % 8);
      }
      return column * u.INPUT_UNITS;
    },
  );

/**
 * Asks for the weights that a block needs first, if every expert has rows and few of them. Weights are nobody's output, so
 * the launch before may still run.
 */
export const prefetchWeights = (shape: GemmShape, tile: GemmTile, sizes: TileSizes) =>
  device(
    {
      name: 'prefetch_weights',
      params: { weights: pointer('v16') },
      using: {
        EXPERTS: shape.experts,
        ACROSS: sizes.tilesAcross,
        COLUMNS: tile.columns,
        U: stageUnits,
        STEPS: Math.min(prefetchedSteps, sizes.steps),
        findWeights: findWeights(shape, sizes),
      },
    },
    (g, { weights }, u) => {
      const expert = g.blockIdx.x / u.ACROSS;
      if (expert < u.EXPERTS) {
        for (let row = g.threadIdx.x; row < u.COLUMNS; row += g.blockDim.x) {
          const from = weights.at(u.findWeights({ expert, across: g.blockIdx.x % u.ACROSS, row }));
          for (const step of g.unroll(u.STEPS)) g.prefetch(from.at(step * u.U));
        }
      }
    },
  );
