/** All that the parts of a grouped GEMM are made of: its shape, its tile, their parameters, and the numbers that they may ask for. */
import { ArgumentError } from '../../../../base/errors.js';
import { list, pointer, record, registers } from '../../../../lang/index.js';
import { scaleBlock } from '../../../layer/index.js';
import { type GemmShape, type GemmTile, packedUnits, stageDepth, stageUnits, tableUnits } from './shape.js';

/** Parameters that say which rows there are. */
export const plannedOf = ({ rows }: Pick<GemmShape, 'rows'>) => {
  const all = rows === 'all' ? 1 : 0;
  return {
    /** [expert] of a plan: rows of each, and where they begin. */
    counts: list(pointer('u32'), 1 - all),
    offsets: list(pointer('u32'), 1 - all),
    /** How many rows there are, where one expert has all. */
    count: list('u32', all),
  };
};

export type GemmKit = ReturnType<typeof gemmKit>;

export function gemmKit(shape: GemmShape, tile: GemmTile) {
  const { rows, dtype, packed, experts, inputs, outputs, gated, bias, topK } = shape;
  const e4m3 = dtype === 'e4m3';
  const threads = 32 * tile.warpRows * tile.warpColumns;
  // A thread loads one of them, and of the rows so many further.
  const rowVectors = stageUnits / (e4m3 ? 2 : 1);
  const sources = (tile.rows * rowVectors) / threads;
  const made = tile.columns / (gated ? 2 : 1);
  const [rowParts, columnParts] = [tile.rows / tile.warpRows / 16, tile.columns / tile.warpColumns / 16];
  if (outputs % made !== 0)
    throw new ArgumentError('columns', tile.columns, `a divisor of ${outputs} outputs`);
  if (e4m3 && inputs % scaleBlock !== 0)
    throw new ArgumentError('hidden', inputs, `a multiple of ${scaleBlock}, so many e4m3 have a scale`);
  /** [row]: its route, where rows are gathered. */
  const routes = list(pointer('i32'), rows === 'gathered' ? 1 : 0);
  /** A scale for every 128 elements of rows that come in as e4m3. */
  const scales = list(pointer('f32'), e4m3 ? 1 : 0);
  /** Scales of weights of MXFP4: [expert][32 elements in][out] of ue8m0. */
  const weightScales = list(pointer('v16'), packed ? 1 : 0);
  /** Vectors of a row of weights in a stage; of a stage's weights, and their scales. */
  const weightVectors = packed ? packedUnits : stageUnits;
  const weightsOfStage = tile.columns * weightVectors + (packed ? tile.columns / 8 : 0);
  return {
    ...{ shape, tile, threads, routes },
    planned: plannedOf(shape),
    /** Rows that come in; [expert][out][in], of MXFP4 two a byte; rows that go out, in the order of the plan; and a bias for each [expert][out]. */
    pointers: {
      ...{ routes, from: pointer('v16'), weights: pointer('bf16'), to: pointer('bf16'), scales },
      bias: list(pointer('bf16'), bias ? 1 : 0),
      weightScales,
    },
    /** The piece of a tile that a thread loads, and its source. */
    inputs: record({
      ...{ from: pointer('v16'), scales, weights: pointer('v16'), weightScales },
      /** The vectors of the first stage: of each of the thread's rows, and of its first row of weights. */
      ...{ sources: registers('u32'), column: 'u32' },
      /** The vector of scales of weights that this thread loads of the first stage, where weights are MXFP4. */
      strip: 'u32',
      /** The tile's rows that there are, and further ones. */
      rows: 'u32',
    }),
    /** Vectors of e4m3 that a thread holds, and their scales. */
    held: record({ vectors: registers('v16'), scales: registers('f32') }),
    /**
     * A warp's parts of 16 elements of its rows and of its rows of weights, twice: one is multiplied, the next is loaded.
     * Where tiles are for few rows, 16 rows that there are not are neither loaded nor multiplied.
     */
    parts: record({ a: registers('v16'), b: registers('v16'), rows: 'u32' }),
    u: {
      ...{ EXPERTS: experts, K: topK, OUTPUTS: outputs, GATED: gated, E4M3: e4m3, PACKED: packed },
      ...{ FEW: tile.few, ROWS: tile.rows, STAGES: tile.stages, CUTS: tile.cuts, THREADS: threads },
      WARP_COLUMNS: tile.warpColumns,
      /** Vectors of a row in a stage: as bf16, and as it comes in. */
      ...{ U: stageUnits, ROW_VECTORS: rowVectors, ROWS_APART: threads / rowVectors },
      /** Rows of which a thread loads a vector; where that is less than one, only the first threads load. */
      ...{ SOURCES: Math.ceil(sources), SOME: sources < 1 },
      /** Vectors of a row that comes in, and of one of weights; stages of either. */
      ...{
        INPUT_VECTORS: inputs / (e4m3 ? 16 : 8),
        WEIGHT_UNITS: inputs / (packed ? 32 : 8),
        STEPS: inputs / stageDepth,
      },
      /** Vectors in a stage: of its rows, and all. */
      ...{ ROW_UNITS: tile.rows * stageUnits, TILE_UNITS: tile.rows * stageUnits + weightsOfStage },
      TABLE_UNITS: packed ? tableUnits : 0,
      ...{ WEIGHT_VECTORS: weightVectors, WEIGHT_ROWS: outputs * (gated ? 2 : 1) },
      /** Elements of a row that goes out of a tile, and how many tiles make one. */
      ...{ MADE: made, ACROSS: outputs / made },
      /** Fragments of 16 rows, and of 16 rows of weights, of a warp. */
      ...{ ROW_PARTS: rowParts, COLUMN_PARTS: columnParts },
      /** Elements that 16 rows of weights make, and how far apart the halves of these rows lie. */
      ...{ MADE_OF_16: gated ? 8 : 16, HALVES_APART: gated ? outputs : 8 },
    },
  };
}
