/**
 * The operation: what dispatch and combine mean, and what a user holds.
 */
export {
  type BenchHandles,
  benchHandles,
  type DispatchArguments,
  ExpertParallel,
  type ExpertParallelOptions,
  type Received,
  type Row,
  row,
} from './expert-parallel.js';
export type { Combining, Dispatched, SplitRounds } from './split.js';
export * from './tensor.js';
export { defaultTuning, type Tuning } from './tuning.js';
export * from './validate.js';
