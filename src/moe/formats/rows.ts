/** Rows that travel as they lie. */
import { dtypes } from './dtype.js';
import type { RowFormat } from './format.js';

export const rows: RowFormat = {
  multiple: 1,
  mostThreads: 1024,
  bytes: ({ dtype, hidden }) => hidden * dtypes[dtype].size,
  sums: (dtype) => dtype,
  together: () => 1,
  arrives: (row) => row,
  rounding: null,
};
