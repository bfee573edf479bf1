/** A device that is an NVIDIA GPU. Nothing of CUDA is loaded until one of these is called. */
export { cacheFolder, requireOwnCache } from './cache.js';
export { compileKernel, findCompiler, type KernelSource } from './compiler.js';
export type { Compiler } from './compilers.js';
export { Cublas, type GroupedProducts, type Product } from './cublas.js';
export { CudaDevice, type CudaSource, type Dmabuf } from './device.js';
export { CompileError, type CompilerMessage } from './diagnostics.js';
export { type CudaReport, type DoctorFinding, examineCuda, type GpuReport, library } from './doctor.js';
export { forgetCurrentContext, formatVersion } from './driver.js';
export { CudaError } from './errors.js';
export { canAddress, countGpus, describeGpu, type Gpu, gpusHere, listGpus } from './gpu.js';
export {
  NcclCommunicator,
  type NcclType,
  ncclGroup,
  ncclUniqueId,
  ncclUniqueIdBytes,
  ncclVersionNumber,
} from './nccl.js';
export { type NvshmemHeaders, nvshmemHeaders } from './nvshmem/headers.js';
export { NvshmemHeap } from './nvshmem/heap.js';
export { nvshmem } from './nvshmem/library.js';
export type { CudaLauncher, CudaProgram, KernelFacts, Parameter, ParameterBlock } from './program.js';
export { type CudaEvent, type CudaGraph, CudaStream } from './stream.js';
export { formatBytes, windowKinds } from './window.js';
export { GpuFlush } from './wire.js';
