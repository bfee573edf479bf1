/**
 * The cost of dispatch and combine on a cluster that is not there yet: exact traffic, a model fitted to what was
 * measured, ranges, and how far off it was on cells that it had not seen.
 */
export * from './advice.js';
export * from './calibration-file.js';
export * from './cells.js';
export { type Fit, fitCells, fitSource } from './fit.js';
export * from './from-bench.js';
export { fitGemms, gemmTables, gemmWork } from './gemms.js';
export { leastSquares } from './linear.js';
export * from './machines.js';
export { type Parameters, parameterNames, time, type Work, workOf } from './model.js';
export { planPage } from './page.js';
export * from './plan.js';
export { predict } from './predict.js';
export * from './routing.js';
export * from './serve.js';
export * from './serve-text.js';
export { type Round, simulate } from './simulate.js';
export * from './sources.js';
export * from './text.js';
export * from './traffic.js';
export * from './validate.js';
