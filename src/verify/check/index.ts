/**
 * The check: kernels under many schedules on the simulated machine, and mutants of them to show that it would have
 * seen mistakes.
 */
export { type AccessReport, type Finding, formatFinding, type SimMachine } from '../../gpu/sim/index.js';
export { type CheckReport, check } from './check.js';
export { mutantsOf, mutate } from './mutants.js';
export type { CheckOptions, CheckProgress, CheckWorkers } from './options.js';
export { configuration, loadOwnModule, type OwnMachine, type OwnModule } from './own-module.js';
export { type PtxHost, ptxSubject } from './ptx-subject.js';
export { runOnce, seedOf } from './run.js';
export type { Mutant } from './subject.js';
export { type CheckConfiguration, type CheckSubject, subjectsNamed, WrongResult } from './subject.js';
export { checkSubjects, checkSubjectsModule } from './subjects/index.js';
