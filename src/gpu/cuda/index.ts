/** A device that is an NVIDIA GPU. Nothing of CUDA is loaded until one of these is called. */
export { cacheFolder, requireOwnCache } from './cache.js';
export { compileKernel, compilerRemedy, findCompiler, type KernelSource } from './compiler.js';
export type { Compiler } from './compilers.js';
export { Cublas, type GroupedProducts, type Product } from './cublas.js';
export { CudaDevice, type Dmabuf } from './device.js';
export { CompileError, type CompilerMessage } from './diagnostics.js';
export {
  createOut,
  driverCandidates,
  driverRemedy,
  forgetCurrentContext,
  formatVersion,
  type Out,
} from './driver.js';
export { CudaError } from './errors.js';
export {
  canAddress,
  countGpus,
  describeGpu,
  formatBytes,
  type Gpu,
  gpusHere,
  hasPeerAtomics,
  listGpus,
  requireHardware,
} from './gpu.js';
export { type Links, nvmlCandidates, openNvml } from './nvml.js';
export { nvrtcCandidates } from './nvrtc.js';
export { type NvshmemHeaders, nvshmemHeaders } from './nvshmem/headers.js';
export { NvshmemHeap } from './nvshmem/heap.js';
export { nvshmem, nvshmemCandidates, nvshmemRemedy, nvshmemTrial } from './nvshmem/library.js';
export type { NvshmemTrial } from './nvshmem/trial.js';
export { nvtxAskedFor } from './nvtx.js';
export type { CudaLauncher, CudaProgram, KernelFacts } from './program.js';
export { type FabricProbe, fabricRemedy } from './sharing.js';
export { type CudaEvent, type CudaGraph, CudaStream } from './stream.js';
export { swizzles, tensorTypes } from './tensor-map.js';
export { allowsTakingDescriptors, windowKinds } from './window.js';
export { GpuFlush } from './wire.js';
