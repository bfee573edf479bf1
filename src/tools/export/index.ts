/** Heddle's kernels for hosts that are not Heddle: sources, compiled kernels, and the plan of their launches. */
export { architectureNamed } from './architecture.js';
export { type Exported, exportPlan, type LaunchPlan } from './launch-plan.js';
export { describe } from './pack.js';
export { expertWeights, type PlannedExperts, type SortedRows } from './rounds.js';
export { writeExport, writeKernels, writeShape } from './write.js';
