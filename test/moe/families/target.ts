import type { PlanTarget } from '../../../src/moe/families/index.js';
import type { Layer } from '../../../src/moe/layer/index.js';
import { topologyOf } from '../../../src/net/world/index.js';

/** Where a plan of a test runs: a rank of these nodes, on a GPU of 132 multiprocessors. */
export const targetOn = (nodeOf: readonly unknown[], differences: Partial<PlanTarget> = {}): PlanTarget => ({
  kind: 'cuda',
  multiprocessors: 132,
  capability: [9, 0],
  rank: 0,
  split: false,
  sms: null,
  transport: 'windows',
  topology: topologyOf([...nodeOf], differences.rank ?? 0),
  ...differences,
});

/** DeepSeek-V3's layer on 8 ranks: fp8 rows with scales there, bf16 back. */
export const deepSeek: Layer = {
  ranks: 8,
  experts: 256,
  topK: 8,
  maxTokens: 128,
  payloads: [
    { name: 'x', rowBytes: 7168 },
    { name: 'scales', rowBytes: 224 },
  ],
  output: { dtype: 'bf16', hidden: 7168, weighting: 'experts', combineFormat: 'rows' },
  weights: true,
  counts: false,
};
