/** Heddle's kernels for hosts that are not Heddle: sources, compiled kernels, and the plan of their launches. */
export {
  type Exported,
  exportPlan,
  type LaunchParameter,
  type LaunchPlan,
  type PlannedLaunch,
} from './launch-plan.js';
export { type Written, writeExport } from './write.js';
