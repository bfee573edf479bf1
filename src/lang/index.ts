/** The kernel language: kernels as closed TypeScript functions, what they mean, and the CUDA printed from that. */
export {
  type AbiParameter,
  compileOptions,
  entryName,
  maxPeers,
  parameterAbi,
} from './cuda/abi.js';
export { type PrintOptions, printCuda } from './cuda/printer.js';
export { type DeviceHeader, device, type Kernel, type KernelHeader, kernel } from './define.js';
export type { Ordering } from './definition.js';
export { type Code, codes, type Diagnostic, formatDiagnostic, KernelError } from './diagnostics.js';
export { type ForeignHeader, foreign } from './foreign.js';
export type * from './gpu.js';
export {
  callable,
  constant,
  field,
  layout,
  list,
  peers,
  pointer,
  record,
  registers,
  section,
  tensorMap,
  tiles,
  windowOf,
} from './header.js';
export type * from './ir.js';
export type * from './kernel.js';
export type * from './language.js';
export {
  type OperationEffect,
  type OperationName,
  operationNames,
  operations,
} from './operations/index.js';
export type { AccessForm, Argument, Await, Pause, SimRequests, Together } from './operations/machine.js';
export { dealMatrices, matrixWords, multiplyMatrices } from './operations/matrices.js';
export { pureFunctions, pureNames } from './operations/pure.js';
export { shuffles } from './operations/warp.js';
export { pipeline } from './pipeline.js';
export { printIr } from './print.js';
export {
  PtxError,
  type PtxKernel,
  type PtxKernelOptions,
  type PtxParameter,
  type PtxProgram,
  ptx,
} from './ptx/index.js';
export { dynamicSharedBytes, mostShared, type SharedRange, sharedLayout } from './shared.js';
export { writtenLine } from './source.js';
export { provideSource } from './textfile.js';
export { isTile, offsetInTile, swizzled, tile } from './tile.js';
export * from './types.js';
export {
  bodies,
  changedBy,
  children,
  type EffectPlace,
  effectsOf,
  expressionsOf,
  foreignSources,
  hardwareOf,
  isLeftEarly,
  operands,
  requireModule,
  rewriteEffects,
  rewriteStatements,
  walkExpression,
  walkStatements,
} from './walk.js';
