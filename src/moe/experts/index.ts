/** The experts of a layer: their rows sorted by expert, and their products. */
export { type ExpertsPlanOptions, expertsKernels } from './experts-options.js';
export { type ExpertSizes, ExpertsPlan, type PlannedRows, type Receiving } from './experts-plan.js';
export * from './kernels/example-experts.js';
export { gemmTile, type MlpShape, mlpKernels, rowsMultiplied } from './kernels/gemm/kernels.js';
export { swigluKernel } from './kernels/gemm/swiglu.js';
export { addRows, rowsToFp8, rowsToFp8Kernel } from './kernels/rows.js';
export {
  type ExpertsShape,
  evenRows,
  mostLocalExperts,
  routesOf,
  rowsOfPlan,
  slotsOf,
} from './kernels/shape.js';
export {
  DenseMlp,
  type DenseMlpOptions,
  ExpertsMlp,
  type ExpertsMlpOptions,
  type Gemm,
  gemms,
} from './mlp.js';
export type { MlpWeights } from './products.js';
