import type { PlanTarget } from '../../../src/moe/families/index.js';
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
