export { addRows } from './add.js';
export * from './example-experts.js';
export { gemmTile, type MlpShape, mlpKernels, rowsMultiplied } from './gemm/kernels.js';
export { swigluKernel } from './gemm/swiglu.js';
export { expertsKernels } from './kernels.js';
export { narrowKernel, narrowRows } from './narrow.js';
export { type ExpertsShape, evenRows, mostLocalExperts, routesOf, rowsOfPlan, slotsOf } from './shape.js';
