/** PTX: what compilers make of CUDA, Triton and others, read into modules. */

export { demangled } from './demangle.js';
export {
  type PtxKernel,
  type PtxKernelOptions,
  type PtxParameter,
  type PtxProgram,
  ptx,
  sourceName,
} from './kernel.js';
export * from './module.js';
export { parsePtx } from './parse.js';
export { writtenAs } from './place.js';
