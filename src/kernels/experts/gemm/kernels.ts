/** The two GEMMs of experts, made once for all layers of a process that are alike. */
import { remembered } from '../../common/remembered.js';
import { gemmKernel } from './gemm.js';
import type { GemmRows } from './shape.js';

export interface MlpShape {
  /** Whose rows come in: those of a plan, or all of one expert. */
  readonly of: 'plan' | 'all';
  readonly experts: number;
  readonly hidden: number;
  readonly inner: number;
  readonly topK: number;
  readonly kind: 'sim' | 'cuda';
}

export const mlpKernels = remembered(({ of, experts, hidden, inner, topK, kind }: MlpShape) => {
  const spread = kind === 'sim' ? { blocks: 4, threads: 64 } : { blocks: 132 * 8, threads: 256 };
  const first: GemmRows = of === 'plan' ? 'gathered' : 'all';
  const second: GemmRows = of === 'plan' ? 'sorted' : 'all';
  const up = { rows: first, experts, inputs: hidden, outputs: inner, gated: true, topK };
  const down = { rows: second, experts, inputs: inner, outputs: hidden, gated: false, topK };
  return {
    gateUp: { kernel: gemmKernel(up, spread.threads), ...spread },
    down: { kernel: gemmKernel(down, spread.threads), ...spread },
  };
});
