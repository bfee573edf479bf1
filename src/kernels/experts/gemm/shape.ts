/** What a grouped GEMM is made for: the rows of each expert times its weights, [out, in] each. */

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
