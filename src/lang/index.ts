export {
  type AbiOptions,
  type AbiParameter,
  compileOptions,
  entryName,
  type PrintOptions,
  parameterAbi,
  printCuda,
} from './cuda/index.js';
export { type DeviceHeader, device, type Kernel, type KernelHeader, kernel } from './define.js';
export { type Code, codes, type Diagnostic, formatDiagnostic, KernelError } from './diagnostics.js';
export { field, layout, list, peers, pointer, section } from './header.js';
export type * from './ir.js';
export type * from './kernel.js';
export type * from './language.js';
export { printIr } from './print.js';
export { requireModule } from './require.js';
export * from './types.js';
export { validateIr } from './validate.js';
export {
  bodies,
  children,
  type EffectPlace,
  effectsOf,
  expressionsOf,
  operands,
  rewriteEffects,
  rewriteStatements,
  walkExpression,
  walkStatements,
} from './walk.js';
