/** The two GEMMs of experts, made once for all layers of a process that are alike. */
import { remembered } from '../../common/remembered.js';
import { gemmKernel } from './gemm.js';
import type { GemmRows, GemmShape, GemmTile } from './shape.js';

export interface MlpShape {
  /** Whose rows come in: those of a plan, or all of one expert. */
  readonly of: 'plan' | 'all';
  readonly experts: number;
  readonly hidden: number;
  readonly inner: number;
  readonly topK: number;
  /** That an expert is likely to have. */
  readonly rows: number;
  readonly kind: 'sim' | 'cuda';
}

/** Tiles, by the rows that an expert is likely to have. */
export function tileFor(rows: number, kind: 'sim' | 'cuda'): GemmTile {
  if (kind === 'sim') {
    const few = { rows: 16, columns: 64, warpRows: 1, warpColumns: 4, stages: 3, resident: 1 };
    return rows <= 16 ? few : { ...few, rows: 32, warpRows: 2, warpColumns: 2 };
  }
  return { rows: 128, columns: 128, warpRows: 2, warpColumns: 2, stages: 3, resident: 2 };
}
export const mlpKernels = remembered(({ of, experts, hidden, inner, topK, rows, kind }: MlpShape) => {
  const first: GemmRows = of === 'plan' ? 'gathered' : 'all';
  const second: GemmRows = of === 'plan' ? 'sorted' : 'all';
  const make = (shape: GemmShape) => {
    const tile = tileFor(rows, kind);
    const blocks = kind === 'sim' ? 4 : 132 * tile.resident;
    return { kernel: gemmKernel(shape, tile), blocks, threads: 32 * tile.warpRows * tile.warpColumns };
  };
  return {
    gateUp: make({ rows: first, experts, inputs: hidden, outputs: inner, gated: true, topK }),
    down: make({ rows: second, experts, inputs: inner, outputs: hidden, gated: false, topK }),
  };
});
