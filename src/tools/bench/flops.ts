/** What the GEMMs of experts compute, where some rows are there only because kernels work on tiles. */
import { gemmTile, rowsMultiplied } from '../../moe/experts/index.js';
import type { MoeModel } from '../../moe/layer/index.js';

export interface Flops {
  /** Of the rows that routes need. */
  readonly usefulFlops: number;
  /** Of all rows that are multiplied: those besides are no rows of anybody's, and nobody loads them. */
  readonly paddedFlops: number;
}

/** Rows of experts with so many each, as a kernel that takes `unit` at a time multiplies them. */
export const paddedRows = (counts: Iterable<number>, unit: number): number =>
  [...counts].reduce((sum, count) => sum + Math.ceil(count / unit) * unit, 0);

/** Of both GEMMs by Heddle's kernels, made for so many rows an expert. */
export function expertFlops(
  { hidden, inner }: Pick<MoeModel, 'hidden' | 'inner'>,
  counts: Iterable<number>,
  likely: number,
  kind: 'sim' | 'cuda',
): Flops {
  const rows = (outputs: number, gated: boolean): number =>
    paddedRows(counts, rowsMultiplied(gemmTile(likely, { outputs, gated, e4m3: false }, kind)));
  const product = 2 * hidden * inner;
  return {
    usefulFlops: 3 * product * paddedRows(counts, 1),
    paddedFlops: product * (2 * rows(inner, true) + rows(hidden, false)),
  };
}

/** For a table: how many are useful, and how many more there are, `12.3` and `+50 %`. */
export const flopsCells = (useful: number, padded: number): string[] => [
  (useful / 1e9).toFixed(1),
  useful === 0 ? '–' : `+${(100 * (padded / useful - 1)).toFixed(0)} %`,
];
