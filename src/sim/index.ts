export type { AccessReport, Finding } from './detector.js';
export type { HostProgram, KernelStatistics, TraceEntry } from './engine.js';
export { type Exploration, explore } from './exhaustive.js';
export { findingKey, formatFinding } from './findings.js';
export {
  type MachineOptions,
  type MachineStatistics,
  maxRanks,
  type ScheduleName,
  SimMachine,
} from './machine.js';
export type { Schedule } from './schedule.js';
