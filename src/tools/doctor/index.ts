/** Looking at a machine: what Heddle can use there, and what is missing. */
export type { GpuReport } from './cuda.js';
export { type Diagnosis, diagnose } from './machine.js';
