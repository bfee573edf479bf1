/**
 * A tile's way through shared memory. A stage holds 64 elements of the tile's rows and of its rows of weights, 8 vectors
 * each. Vector v of row r lies at place v ^ (r % 8) of its row, so that the 8 rows of a matrix, which a warp loads at once,
 * lie in different banks.
 */
import { constant, device, pointer, record, registers } from '../../../../lang/index.js';
import { fetchRows, heldRows, tileInputs } from './rows.js';
import { type GemmShape, type GemmTile, stageUnits, type TileSizes } from './shape.js';

/** Starts the loads of one stage. A thread loads vector t % 8 of every so-manieth row of weights. */
export const loadStage = (shape: GemmShape, tile: GemmTile, sizes: TileSizes) =>
  device(
    {
      params: { stage: pointer('v16'), inputs: tileInputs(shape), step: 'u32', held: heldRows },
      using: {
        U: stageUnits,
        THREADS: sizes.threads,
        ROW_UNITS: sizes.rowUnits,
        WEIGHTS: (tile.columns * stageUnits) / sizes.threads,
        // The next row of weights lies as far apart as the tile has it, or half of it where gates lie between.
        APART: (sizes.weightsApart / (shape.gated ? 2 : 1)) * sizes.weightUnits,
        fetchRows: fetchRows(shape, tile, sizes),
      },
    },
    (g, { stage, inputs, step, held }, u) => {
      u.fetchRows({ stage, inputs, step, held });
      const { weights, column } = inputs;
      const row = g.threadIdx.x / u.U;
      const at = stage.at(row * u.U + ((g.threadIdx.x % u.U) ^ (row % 8)));
      const further = step * u.U;
      for (const i of g.unroll(u.WEIGHTS))
        g.async.load(at.at(u.ROW_UNITS + i * u.THREADS), weights.at(column + i * u.APART + further));
    },
  );

/**
 * A warp's parts of 16 elements of its rows and of its rows of weights, twice: one is multiplied, the next is loaded.
 * Where tiles are for few rows, 16 rows that there are not are neither loaded nor multiplied.
 */
export const tileParts = record({ a: registers('v16'), b: registers('v16'), rows: 'u32' });

/** Loads parts k of 4 of a stage. */
export const loadParts = (tile: GemmTile, { rowUnits, rowParts, columnParts }: TileSizes) =>
  device(
    {
      params: { stage: pointer('v16'), k: constant<number>(), parts: tileParts },
      using: {
        FEW: tile.few,
        U: stageUnits,
        ROW_UNITS: rowUnits,
        ROW_PARTS: rowParts,
        COLUMN_PARTS: columnParts,
        WARP_COLUMNS: tile.warpColumns,
      },
    },
    (g, { stage, k, parts: { a, b, rows } }, u) => {
      const lane = g.laneId;
      const first = (g.warpId / u.WARP_COLUMNS) * (16 * u.ROW_PARTS);
      const row = first + (lane % 16);
      const column = (g.warpId % u.WARP_COLUMNS) * (16 * u.COLUMN_PARTS) + (lane / 16) * 8 + (lane % 8);
      const atA = stage.at(row * u.U + ((2 * k) ^ (lane / 16) ^ (lane % 8)));
      const atB = stage.at(u.ROW_UNITS + column * u.U + ((2 * k) ^ ((lane / 8) % 2) ^ (lane % 8)));
      const set = k % 2;
      for (const m of g.unroll(u.ROW_PARTS)) {
        if (!u.FEW || first + 16 * m < rows) a[set * u.ROW_PARTS + m] = g.warp.ldmatrix(atA.at(m * 16 * u.U));
      }
      for (const n of g.unroll(u.COLUMN_PARTS))
        b[set * u.COLUMN_PARTS + n] = g.warp.ldmatrix(atB.at(n * 16 * u.U));
    },
  );

/** Adds the product of parts k of 4 to the sums. */
export const multiplyParts = (tile: GemmTile, { rowParts, columnParts }: TileSizes) =>
  device(
    {
      params: { k: constant<number>(), parts: tileParts, sums: registers('v16') },
      using: {
        FEW: tile.few,
        ROW_PARTS: rowParts,
        COLUMN_PARTS: columnParts,
        WARP_COLUMNS: tile.warpColumns,
      },
    },
    (g, { k, parts: { a, b, rows }, sums }, u) => {
      const set = k % 2;
      const first = (g.warpId / u.WARP_COLUMNS) * (16 * u.ROW_PARTS);
      for (const m of g.unroll(u.ROW_PARTS)) {
        if (!u.FEW || first + 16 * m < rows) {
          for (const n of g.unroll(u.COLUMN_PARTS)) {
            for (const half of g.unroll(2)) {
              const i = 2 * (m * u.COLUMN_PARTS + n) + half;
              sums[i] = g.warp.mma(a[set * u.ROW_PARTS + m]!, b[set * u.COLUMN_PARTS + n]!, half, sums[i]!);
            }
          }
        }
      }
    },
  );
