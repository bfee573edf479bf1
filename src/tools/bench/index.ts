/** Measuring: Heddle against the machine's own limits and against NCCL, in one run. */
export * from './experts.js';
export { benchFabric, type FabricBenchReport } from './fabric/bench.js';
export type { FabricBenchOptions, Figure } from './fabric/measurements.js';
export * from './gemm.js';
export { htmlReport } from './html.js';
export * from './layer.js';
export { ncclCandidates, ncclVersion } from './nccl-library.js';
export type { BenchEvent, Plan } from './program.js';
export * from './report.js';
export { runBenchmark } from './run.js';
export { type Unit, unitOf } from './statistics.js';
export { columnsOf, detailLines, footnote, heading, headOf, lineOf } from './table.js';
export { Clock, type Span, timelineOf } from './trace.js';
export { runTuning, type TuneEvent, type TunePlan } from './tune.js';
export { sweep, type WorkloadOptions } from './workload.js';
