/** What a grouped GEMM is made for: the rows of each expert times its weights, [out, in] each. */
import { ArgumentError } from '../../../errors/index.js';

/**
 * Whose rows come in: those that dispatch left, found by the plan's routes (`gathered`); those that lie in the order of
 * the plan (`sorted`); or as many as the host says, of one expert that has them all (`all`).
 */
export type GemmRows = 'gathered' | 'sorted' | 'all';

export interface GemmShape {
  readonly rows: GemmRows;
  readonly experts: number;
  /** Elements of a row that comes in: a multiple of 64. */
  readonly inputs: number;
  /** Elements of a row that goes out: a multiple of 64. */
  readonly outputs: number;
  /** Weights have twice as many rows, first the gates, then what they scale: silu(gate) · up goes out. */
  readonly gated: boolean;
  /** Routes of a slot, where rows are gathered. */
  readonly topK: number;
}

/** Elements of a row that a stage of shared memory holds: 8 vectors, a line of all banks. */
export const stageDepth = 64;
export const stageUnits = stageDepth / 8;

/** What a block computes at a time, and with what. */
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
}

/** Numbers that follow, for the kernel's parts. */
export function tileSizes({ inputs, outputs, gated }: GemmShape, tile: GemmTile) {
  const threads = 32 * tile.warpRows * tile.warpColumns;
  // Of a row's vectors and the rows of weights that a thread loads, the next are so many rows further.
  const rowsApart = threads / stageUnits;
  const made = tile.columns / (gated ? 2 : 1);
  if (outputs % made !== 0)
    throw new ArgumentError('columns', tile.columns, `a divisor of ${outputs} outputs`);
  return {
    threads,
    rowsApart,
    /** Elements of a row that goes out of a tile, and how many tiles make one. */
    made,
    tilesAcross: outputs / made,
    /** Vectors of a row that comes in, and stages. */
    inputUnits: inputs / 8,
    steps: inputs / stageDepth,
    rowUnits: tile.rows * stageUnits,
    tileUnits: (tile.rows + tile.columns) * stageUnits,
    /** Fragments of 16 rows, and of 16 rows of weights, of a warp. */
    rowParts: tile.rows / tile.warpRows / 16,
    columnParts: tile.columns / tile.warpColumns / 16,
  };
}
export type TileSizes = ReturnType<typeof tileSizes>;
