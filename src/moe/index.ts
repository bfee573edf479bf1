/** The operation: what a user holds. */
export type { ExpertsPlanOptions } from './experts/experts-options.js';
export { type ExpertSizes, ExpertsPlan, type PlannedRows, type Receiving } from './experts/experts-plan.js';
export {
  DenseMlp,
  type DenseMlpOptions,
  ExpertsMlp,
  type ExpertsMlpOptions,
  type Gemm,
  gemms,
} from './experts/mlp.js';
export type { MlpWeights } from './experts/products.js';
export { LayerBuffers } from './layer-buffers.js';
export type { LayerRound } from './layer-round.js';
export { type ForwardOptions, layerInside, MoeLayer, type SharingLayerOptions } from './moe-layer.js';
export { bytesOfWeight } from './moe-memory.js';
export type {
  LayerBuffersOptions,
  LayerWeightsType,
  MoeLayerOptions,
  MoeLayerSizes,
  MoeLayerWeights,
  SharingOptions,
} from './moe-options.js';
export { weightsTypes } from './moe-options.js';
export { type MoveOptions, MovingWeights } from './moving-weights.js';
export { ExpertParallel, roundsInside } from './rounds/expert-parallel.js';
export type { Combining, Dispatched, Received } from './rounds/in-flight.js';
export {
  type DispatchInputs,
  type Input,
  type MadeRows,
  requireCombineOutput,
  requireDispatchInputs,
} from './rounds/inputs.js';
export { LayerTable, type Statistics } from './rounds/layer-table.js';
export { leastWindowBytes, type MemoryOptions, type MemoryPart, type MemoryUse } from './rounds/memory.js';
export { type ExpertParallelOptions, fp8, mxfp8, type Row, row } from './rounds/options.js';
export { Scratch } from './rounds/scratch.js';
export * from './rounds/tensor.js';
export * from './rounds/tuned.js';
export { latestRank, type Waits } from './rounds/waits.js';
export { type RoutedModel, type RoutedTokens, Router, type RouterWeights } from './router/index.js';
export type { LoadProgress } from './weights/load.js';
export {
  type LoadedMlp,
  type LoadedRouter,
  type LoadOptions,
  ModelFiles,
  type ModelLayer,
} from './weights/model-files.js';
export { mxfp4ToBf16, mxfp4ToBf16Kernel } from './weights/mxfp4.js';
