/** The arguments of a printed kernel, as the host must fill them in before a launch. */
import { HeddleError, requireText } from '../../base/errors.js';
import { u32 } from '../build.js';
import type { IrModule } from '../ir.js';
import { byteSize, type IrType } from '../types.js';
import { requireModule } from '../walk.js';
import { identifier } from './scopes.js';

/** One kernel parameter, in the order of the kernel's parameter list. */
export interface AbiParameter {
  /** The flattened name under which the host sets it: `tokens`, `payloads_1`; `rank` for the last one. */
  readonly name: string;
  /**
   * - scalar: the value, little-endian; a bool is one byte, 0 or 1.
   * - pointer: a 64-bit device address.
   * - peers: `bytes / 8` 64-bit base addresses, the window of rank r at index r; unused ones are never read.
   * - tensorMap: the 128 bytes that cuTensorMapEncodeTiled makes, aligned to 64.
   * - rank: this rank, counted as the windows are, a u32; every kernel has it as its last parameter.
   */
  readonly kind: 'scalar' | 'pointer' | 'peers' | 'tensorMap' | 'rank';
  readonly type: IrType;
  /** Its place in the parameter buffer (CU_LAUNCH_PARAM_BUFFER_POINTER), aligned to its own size, peers to 8, maps to 64. */
  readonly offset: number;
  readonly bytes: number;
}

/** Most ranks of a node, an NVL72 rack: the number of base addresses in a peers parameter. */
export const maxPeers = 72;

/** The parameters of the kernel that `printCuda` prints. */
export function parameterAbi(module: IrModule): readonly AbiParameter[] {
  requireModule('module', module);
  const parameters: AbiParameter[] = [];
  let end = 0;
  const add = (name: string, type: IrType, kind: AbiParameter['kind'], bytes: number): void => {
    const alignment = kind === 'tensorMap' ? 64 : Math.min(bytes, 8);
    const offset = Math.ceil(end / alignment) * alignment;
    parameters.push({ name, kind, type, offset, bytes });
    end = offset + bytes;
  };
  for (const { name, type } of module.entry.params) {
    if (type.kind === 'pointer') add(name, type, 'pointer', 8);
    else if (type.kind === 'tensorMap') add(name, type, 'tensorMap', 128);
    else if (type.kind === 'peers') add(name, type, 'peers', 8 * maxPeers);
    else if (type.kind === 'value' && type.name !== 'v16') {
      add(name, type, 'scalar', type.name === 'bool' ? 1 : byteSize[type.name]);
    } else
      throw new HeddleError(
        'HEDDLE_PRINT',
        `a kernel cannot have '${name}' of type ${type.kind} as a parameter`,
      );
  }
  add('rank', u32, 'rank', 4);
  return parameters;
}

/**
 * The symbol of the kernel in a compiled module: cuModuleGetFunction's name. Nothing that the headers declare ends
 * like this, so a kernel may be called `exp`.
 */
export function entryName(module: IrModule): string {
  requireModule('module', module);
  const name = identifier(module.name);
  return name.endsWith('_kernel') ? name : `${name}_kernel`;
}

/**
 * Options for NVRTC and nvcc alike. They pin f32 to one rounding per operation (no contraction into fma), correctly
 * rounded division and denormals, which is what the simulator computes; and keep source lines for profilers.
 */
export function compileOptions(arch: string): readonly string[] {
  requireText('arch', arch, "an architecture: 'sm_90a'");
  return [
    `--gpu-architecture=${arch}`,
    '--std=c++17',
    '--fmad=false',
    '--ftz=false',
    '--prec-div=true',
    '--prec-sqrt=true',
    '--generate-line-info',
  ];
}
