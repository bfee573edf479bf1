/** The kernels of experts: their rows sorted by expert, and their products. The part that users hold comes by the door of moe. */
export { expertsKernels } from './experts-options.js';
export * from './kernels/example-experts.js';
export { type MlpShape, mlpKernels } from './kernels/gemm/kernels.js';
export { swigluKernel } from './kernels/gemm/swiglu.js';
export {
  hopperKernels,
  mostBeside,
  multiprocessorsBeside,
  rowsOfForms,
  sortsRows,
  sumsOfParts,
} from './kernels/hopper/kernels.js';
export { groupRows } from './kernels/hopper/shape.js';
export { rowsToFp8, rowsToFp8Kernel } from './kernels/rows-to-fp8.js';
export {
  type ExpertsShape,
  evenRows,
  fewRows,
  fewTokens,
  mostLocalExperts,
  routesOf,
  rowsOfPlan,
  sizesOfPlan,
  slotsOf,
} from './kernels/shape.js';
export { mlpParts } from './mlp.js';
export { mlpUnit, requireUnits } from './products.js';
