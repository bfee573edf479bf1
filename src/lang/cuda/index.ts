/** IR → CUDA C++. */
export {
  type AbiOptions,
  type AbiParameter,
  compileOptions,
  defaultMaxPeers,
  entryName,
  parameterAbi,
} from './abi.js';
export { type PrintOptions, printCuda } from './printer.js';
