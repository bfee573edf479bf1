export type { AccessReport, Finding } from './detector.js';
export type { SimWindowMemory } from './device.js';
export type { KernelStatistics, TraceEntry } from './engine.js';
export { formatFinding } from './findings.js';
export {
  type MachineOptions,
  type MachineStatistics,
  maxRanks,
  type ScheduleName,
  SimMachine,
} from './machine.js';
