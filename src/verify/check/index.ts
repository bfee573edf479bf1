/**
 * The check: kernels under many schedules on the simulated machine, and mutants of them to show that it would have
 * seen mistakes.
 */
export { type Finding, formatFinding } from '../../gpu/sim/index.js';
export { type Cause, formatCause } from './causes.js';
export { type CheckReport, check } from './check.js';
export { mutantsOf, mutate } from './mutants.js';
export type { CheckOptions, CheckProgress } from './options.js';
export { loadOwnModule } from './own-module.js';
export { type PtxContents, ptxContents, ptxSubject } from './ptx-subject.js';
export * from './public.js';
export { runOnce, seedOf } from './run.js';
export type { Mutant } from './subject.js';
export { type CheckSubject, subjectsNamed } from './subject.js';
export { checkSubjects, checkSubjectsModule } from './subjects/index.js';
