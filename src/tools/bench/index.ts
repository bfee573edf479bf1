/** Measuring: Heddle against the machine's own limits and against NCCL, in one run. */
export { headOf, lineOf } from './columns.js';
export * from './gemm.js';
export * from './layer.js';
export { modelBench } from './model.js';
export { ncclCandidates, ncclVersion } from './nccl-library.js';
export { ownBench } from './own.js';
export type { BenchReport, Point, RoundsPlan } from './program.js';
export { roundBench } from './rounds.js';
export * from './rows.js';
export * from './run.js';
export * from './table.js';
export { Clock, type Span, timelineOf } from './trace.js';
export { type TunePlan, tuneBench } from './tune.js';
export { routerInWords, sweep, type WorkloadOptions } from './workload.js';
