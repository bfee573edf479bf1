/** The operation: what a user holds. */
export { DenseMlp, type DenseMlpOptions } from './dense-mlp.js';
export {
  type BenchHandles,
  type BenchLaunch,
  benchHandles,
  ExpertParallel,
  type LaidWire,
} from './expert-parallel.js';
export { ExpertsMlp, type ExpertsMlpOptions, type Gemm, gemms } from './experts-mlp.js';
export type { ExpertsPlanOptions } from './experts-options.js';
export { type ExpertSizes, ExpertsPlan, type PlannedRows, type Receiving } from './experts-plan.js';
export type { MemoryOptions, MemoryPart, MemoryUse } from './memory.js';
export { type Mark, MicroBatch, type Parts, type Work, works } from './micro-batch.js';
export type { MlpWeights } from './mlp-weights.js';
export { layerBatches, MoeLayer } from './moe-layer.js';
export type { MoeLayerOptions, MoeLayerSizes } from './moe-options.js';
export { type ExpertParallelOptions, type Row, row } from './options.js';
export { type RoutedModel, type RoutedTokens, Router, type RouterWeights } from './router.js';
export type { Combining, Dispatched } from './stages.js';
export * from './tensor.js';
export type { Received } from './track.js';
export * from './validate.js';
