/** The shape of a grouped GEMM: the rows of each expert times its weights, [out, in] each. */
import { ArgumentError } from '../../../../base/errors.js';
import { type Activation, scaleBlock } from '../../../layer/index.js';

/**
 * The rows that come in: those that dispatch left, found by the plan's routes (`gathered`); those that lie in the order of
 * the plan (`sorted`); or as many as the host says, of one expert that has them all (`all`).
 */
export type GemmRows = 'gathered' | 'sorted' | 'all';

export interface GemmShape {
  readonly rows: GemmRows;
  /**
   * The type of rows that come in; e4m3 have a scale for every 128 elements, which divide their length. On Hopper that of weights, and of
   * rows between the two GEMMs, too.
   */
  readonly dtype: 'bf16' | 'e4m3';
  readonly experts: number;
  /** Elements of a row that comes in: a multiple of 64. */
  readonly inputs: number;
  /** Elements of a row that goes out: a multiple of 64. */
  readonly outputs: number;
  /** Weights have twice as many rows, first the gates, then what they scale: what the activation makes of both goes out. */
  readonly gated: boolean;
  /** What becomes of gates and of what they scale. */
  readonly activation: Activation;
  /** There is a bf16 for every row of weights, which is added to its sums. */
  readonly bias: boolean;
  /** Routes of a slot, where rows are gathered. */
  readonly topK: number;
}

/** Elements of a row that a stage of shared memory holds: 8 vectors, a line of all banks. */
export const stageDepth = 64;
export const stageUnits = stageDepth / 8;

/** The tile that a block computes at a time, and how. */
export interface GemmTile {
  /** Rows: a multiple of 16 · warpRows. */
  readonly rows: number;
  /** Rows of weights: a multiple of 16 · warpColumns, which divides those that there are. */
  readonly columns: number;
  /** How the warps lie over the tile. */
  readonly warpRows: number;
  readonly warpColumns: number;
  /** For experts with few rows: weights are most of what is read, and most tiles have rows for a part only. */
  readonly few: boolean;
  /** Pieces of the rows that are loaded or read at a time. */
  readonly stages: number;
  /** Blocks that share a multiprocessor. */
  readonly resident: number;
  /** Into how many pieces of fewer columns the last tiles may be cut: 1, 2 or 4. */
  readonly cuts: number;
}

/** Such a piece: it has the tile's rows and threads, and fills the same memory. */
export function pieceOf(tile: GemmTile, cuts: number): GemmTile {
  const { rows, warpRows, warpColumns } = tile;
  if (cuts === 1) return tile;
  const columns = tile.columns / cuts;
  const stages = Math.floor((tile.stages * (rows + tile.columns)) / (rows + columns));
  return { ...tile, columns, warpRows: 2 * warpRows, warpColumns: warpColumns / 2, stages };
}

/** Numbers that follow, for the kernel's parts. */
export function tileSizes({ inputs, outputs, gated, dtype }: GemmShape, tile: GemmTile) {
  const e4m3 = dtype === 'e4m3';
  const threads = 32 * tile.warpRows * tile.warpColumns;
  // Vectors of a row as it comes in, in a stage. A thread loads one of them, and of the rows so many further.
  const rowVectors = stageUnits / (e4m3 ? 2 : 1);
  const sources = (tile.rows * rowVectors) / threads;
  const made = tile.columns / (gated ? 2 : 1);
  if (outputs % made !== 0)
    throw new ArgumentError('columns', tile.columns, `a divisor of ${outputs} outputs`);
  if (e4m3 && inputs % scaleBlock !== 0)
    throw new ArgumentError('hidden', inputs, `a multiple of ${scaleBlock}, so many e4m3 have a scale`);
  return {
    threads,
    rowVectors,
    rowsApart: threads / rowVectors,
    sources: Math.ceil(sources),
    /** Only the first threads load a vector of rows. */
    someLoad: sources < 1,
    weightsApart: threads / stageUnits,
    /** Elements of a row that goes out of a tile, and how many tiles make one. */
    made,
    tilesAcross: outputs / made,
    /** Vectors of a row that comes in, of one of weights, and stages of either. */
    inputVectors: inputs / (e4m3 ? 16 : 8),
    weightUnits: inputs / 8,
    steps: inputs / stageDepth,
    rowUnits: tile.rows * stageUnits,
    tileUnits: (tile.rows + tile.columns) * stageUnits,
    /** Fragments of 16 rows, and of 16 rows of weights, of a warp. */
    rowParts: tile.rows / tile.warpRows / 16,
    columnParts: tile.columns / tile.warpColumns / 16,
  };
}
export type TileSizes = ReturnType<typeof tileSizes>;
