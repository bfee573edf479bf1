/**
 * Foreign functions: the one place that knows koffi. Libraries are opened at run time, addresses are plain
 * numbers, raw memory is seen through zero-copy views. And threads, started on a module.
 */
export {
  errno,
  functionAt,
  functionOfC,
  type Library,
  openLibrary,
  setEnvironment,
} from './library.js';
export {
  addressOf,
  allocate,
  maxViewBytes,
  type NativeMemory,
  readAddress,
  readString,
  view,
} from './memory.js';
export { type Probe, probe, type VersionCall } from './probe.js';
export { endOrderly, runApart, startThread, stayOn, stepDone, yieldProcessor } from './thread.js';
export {
  type Address,
  byValue,
  type NativeFunction,
  type NativeType,
  type Signature,
  type Signatures,
} from './types.js';
