/**
 * The operation: what dispatch and combine mean, and what a user holds.
 */
export * from '../layer/arithmetic.js';
export * from '../layer/dtype.js';
export type { ReferenceReceived, Source } from '../layer/index.js';
export * from '../layer/profiles.js';
export * as reference from '../layer/reference.js';
export * from '../layer/shape.js';
export * from '../layer/traffic.js';
export * from '../testing/compare.js';
export * from '../testing/example-experts.js';
export * from '../testing/random.js';
export * from '../testing/rounds.js';
export * from '../testing/routes.js';
export * from '../tuning/file.js';
export { tunedFor, tunedH200 } from '../tuning/index.js';
export { checkSubjects } from './check-subjects.js';
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
