/** The shape of a grouped GEMM: the rows of each expert times its weights, [out, in] each. */
import type { Activation } from '../../../layer/index.js';

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
  /** Whether weights are MXFP4, which become bf16 on the way to the tensor cores (packed.ts). Else they are bf16, or on Hopper as rows are. */
  readonly packed: boolean;
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
/** Vectors of a row of weights of MXFP4 in a stage. */
export const packedUnits = stageDepth / 32;
/** Vectors of the table by which bytes of them become bf16: two for each byte and lane. */
export const tableUnits = (256 * 32) / 4;

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

/** A piece of a tile that is cut: it has the tile's rows and threads, and fills the same memory. */
export function pieceOf(tile: GemmTile, cuts: number): GemmTile {
  const { rows, warpRows, warpColumns } = tile;
  if (cuts === 1) return tile;
  const columns = tile.columns / cuts;
  const stages = Math.floor((tile.stages * (rows + tile.columns)) / (rows + columns));
  return { ...tile, columns, warpRows: 2 * warpRows, warpColumns: warpColumns / 2, stages };
}
