export {
  type CheckConfiguration,
  type CheckOptions,
  type CheckProgress,
  type CheckReport,
  type CheckSubject,
  check,
  runOnce,
  seedOf,
  WrongResult,
} from './check.js';
export type { AccessReport, Finding, Site } from './detector.js';
export type { SimWindowMemory } from './device.js';
export type { KernelStatistics, TraceEntry } from './engine.js';
export type { Exploration } from './exhaustive.js';
export { formatFinding } from './findings.js';
export {
  type MachineOptions,
  type MachineStatistics,
  maxRanks,
  type ScheduleName,
  SimMachine,
} from './machine.js';
export { type Mutant, mutantsOf } from './mutants.js';
export type { Watcher } from './watched.js';
