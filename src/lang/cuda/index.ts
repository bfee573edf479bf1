/** IR → CUDA C++ (and, for tests, → C++ for the host). */
export {
  type AbiOptions,
  type AbiParameter,
  compileOptions,
  defaultMaxPeers,
  entryName,
  parameterAbi,
} from './abi.js';
export { type PrintOptions, printCuda, printHost } from './printer.js';
