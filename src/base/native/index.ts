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
export * from './memory.js';
export * from './probe.js';
export * from './thread.js';
export {
  type Address,
  byValue,
  type NativeFunction,
  type NativeType,
  type Signature,
  type Signatures,
} from './types.js';
