export { addRows } from './add.js';
export * from './example-experts.js';
export { type MlpShape, mlpKernels } from './gemm/kernels.js';
export { expertsKernels } from './kernels.js';
export { type ExpertsShape, mostLocalExperts, routesOf, rowsOfPlan, slotsOf } from './shape.js';
