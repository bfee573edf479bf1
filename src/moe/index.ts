/**
 * The operation: what dispatch and combine mean, and what a user holds.
 */
export * from './arithmetic.js';
export * from './compare.js';
export * from './dtype.js';
export * from './example-experts.js';
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
export * from './moe-round.js';
export * from './profiles.js';
export * from './random.js';
export type { ReferenceReceived, Source } from './reference.js';
export * as reference from './reference.js';
export * from './routes.js';
export * from './shape.js';
export type { Combining, Dispatched, SplitRounds } from './split.js';
export * from './tensor.js';
export * from './traffic.js';
export { tunedFor } from './tuned.js';
export { tunedH200 } from './tuned-h200.js';
export { defaultTuning, type Tuning } from './tuning.js';
export * from './tuning-file.js';
export * from './validate.js';
