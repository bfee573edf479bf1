export type { TraceEntry } from './blocks.js';
export { isPtx, type KernelModule } from './compiled.js';
export {
  type AccessReport,
  type Assumption,
  assumptions,
  type Finding,
  type Mend,
  type Origin,
  type Site,
  type StaleRead,
} from './detector/detector.js';
export { inWordsOf } from './detector/words.js';
export type {
  PtxExtent,
  PtxLauncher,
  PtxLaunchShape,
  PtxProgram as LoadedPtx,
  SimDevice,
} from './device.js';
export { findingKey, formatFinding } from './findings.js';
export type { HostProgram } from './host-threads.js';
export { type MachineOptions, type MachineStatistics, SimMachine } from './machine.js';
export type { SimHostView } from './mapped.js';
export { type Room, stride } from './memory.js';
export type { FlushedNetwork, HostSubstitute, Nic } from './network.js';
export type { ScheduleName } from './options.js';
export { refusedIn } from './ptx/compile.js';
export { Random } from './random.js';
export type { Schedule } from './schedule.js';
export { type HostOperation, type HostSite, hostLine } from './sites.js';
export { SimEvent, type SimStream } from './stream.js';
export { lastSteps, scheduleTimeline } from './timeline.js';
export { type Step, stepsOf, Trace } from './trace.js';
export type { Watcher } from './watched.js';
