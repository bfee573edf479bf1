/**
 * The parts of a layer beside their references, with inputs from a seed: the experts' plan, experts that are MLPs, the
 * router. The check, the benchmarks and Heddle's own tests run these.
 */
export * from './expert-mlp.js';
export * from './expert-rows.js';
export * from './routed.js';
