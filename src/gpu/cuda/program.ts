import { ArgumentError, HeddleError, requireInteger, UnavailableError } from '../../base/errors.js';
import { type Address, addressOf } from '../../base/native/index.js';
import {
  type AbiParameter,
  dynamicSharedBytes,
  entryName,
  type IrModule,
  parameterAbi,
} from '../../lang/index.js';
import {
  type Launcher,
  type LaunchShape,
  requireGrid,
  requireRank,
  requireScalar,
  requireTensor,
  requireWindow,
  type Stream,
  type Tensor,
  type Window,
} from '../index.js';
import { type Context, check } from './driver.js';
import { type Home, streamOf } from './stream.js';
import { encodeTensorMap } from './tensor-map.js';

/** The compiler's figures for a kernel. */
export interface KernelFacts {
  readonly registers: number;
  /** Bytes a thread keeps in local memory: spilled registers and arrays. Communication kernels have none. */
  readonly localBytes: number;
  readonly sharedBytes: number;
  /** Most threads a block may have with this many registers. */
  readonly maxThreads: number;
}

/** A kernel loaded on one GPU. */
export class CudaProgram {
  readonly module: IrModule;
  readonly name: string;
  readonly facts: KernelFacts;
  readonly #home: Home;
  readonly #function: Address;
  readonly #block: readonly AbiParameter[];
  readonly #maxThreads: number;
  readonly #overlaps: boolean;

  /** `overlaps`: the GPU can begin a launch before the one in front of it has ended. */
  constructor(home: Home, module: IrModule, loaded: Address, overlaps: boolean) {
    this.#home = home;
    this.#overlaps = overlaps;
    this.module = module;
    this.name = entryName(module);
    this.#function = loaded;
    this.#block = blockOf(home.context, loaded, module);
    const sharedBytes = dynamicSharedBytes(module.shared);
    if (sharedBytes > 0) allowShared(home.context, loaded, this.name, sharedBytes);
    this.facts = readFacts(home.context, loaded, sharedBytes);
    this.#maxThreads = Math.min(module.maxThreads, this.facts.maxThreads);
  }

  launcher(shape: LaunchShape): CudaLauncher {
    this.#home.requireLive();
    requireInteger('block', shape.block, 1, this.#maxThreads);
    const programmatic = this.#overlaps && shape.programmatic === true;
    return new CudaLauncher(this.#home, this.module, this.#function, this.#block, { ...shape, programmatic });
  }
}

/**
 * The parameters, the rank the last, as they lie in the block of memory that a launch passes. Maps are aligned to 64 bytes of the memory that
 * the GPU keeps parameters in, and where the block begins there only the driver knows.
 */
function blockOf({ driver }: Context, loaded: Address, module: IrModule): readonly AbiParameter[] {
  const block = parameterAbi(module);
  if (block.every(({ kind }) => kind !== 'tensorMap')) return block;
  const name = entryName(module);
  const { out, cuFuncGetParamInfo } = driver;
  if (cuFuncGetParamInfo === null)
    throw new UnavailableError(
      `${name} takes tensors, for which this driver is too old`,
      'Update the driver to one for CUDA 12.4 or newer',
    );
  return block.map((parameter, i) => {
    const found = cuFuncGetParamInfo(loaded, i, out.address, out.address + 8);
    check(found, 'cuFuncGetParamInfo', `asking for parameter ${i} of ${name}`);
    return { ...parameter, offset: out.number(0), bytes: out.number(1) };
  });
}

const attributes = { maxThreads: 0, shared: 1, local: 3, registers: 4, mostDynamicShared: 8 } as const;

/** More than every GPU has must be allowed before a launch may ask for it. */
function allowShared({ driver }: Context, loaded: Address, name: string, bytes: number): void {
  const allowed = driver.cuFuncSetAttribute(loaded, attributes.mostDynamicShared, bytes);
  check(allowed, 'cuFuncSetAttribute', `allowing ${name} ${bytes} bytes of shared memory`);
}

function readFacts(context: Context, loaded: Address, asked: number): KernelFacts {
  const { out, cuFuncGetAttribute } = context.driver;
  const get = (id: number) => {
    check(cuFuncGetAttribute(out.address, id, loaded), 'cuFuncGetAttribute');
    return out.i32[0]!;
  };
  return {
    registers: get(attributes.registers),
    localBytes: get(attributes.local),
    sharedBytes: get(attributes.shared) + asked,
    maxThreads: get(attributes.maxThreads),
  };
}

/** The form in which a parameter is set: that of a value by its name. Told in advance, for `set` must be quick. */
const formOf = ({ type }: AbiParameter) => (type.kind === 'value' ? type.name : type.kind);
interface Parameter extends AbiParameter {
  readonly form: ReturnType<typeof formOf>;
  /** The parameter's name in an error. */
  readonly argument: string;
}

const maxGrid = 2 ** 31 - 1;

// CUlaunchConfig: seven 32-bit words and one of padding, then stream, attributes and their number.
const config = {
  gridX: 0,
  gridY: 1,
  gridZ: 2,
  blockX: 3,
  blockY: 4,
  blockZ: 5,
  shared: 6,
  stream: 8,
  attributes: 10,
  count: 12,
};
const configBytes = 56;
// CUlaunchAttribute: an id, four bytes of padding, a value of 64 bytes.
const programmaticStreamSerialization = 6;
const attributeBytes = 72;
// `extra`, the form that passes all parameters as one block: (pointer, address), (size, address of size), end.
const bufferPointer = 1;
const bufferSize = 2;
const extraBytes = 48;

/**
 * One call site's launch. Everything that the driver reads lies in one piece of memory that is filled in advance;
 * `set` and `launch` write words into it and allocate nothing.
 *
 *     config | attribute | extra | size of the block | the parameter block
 */
export class CudaLauncher implements Launcher {
  readonly #home: Home;
  readonly #name: string;
  readonly #function: Address;
  readonly #parameters: ReadonlyMap<string, Parameter>;
  readonly #unset: Set<string>;
  readonly #words: Uint32Array;
  readonly #view: DataView;
  readonly #base: number;
  readonly #config: Address;
  readonly #cluster: number;
  readonly #extra: Address;
  readonly #launch: (config: Address, kernel: Address, parameters: Address, extra: Address) => number;

  constructor(
    home: Home,
    module: IrModule,
    loaded: Address,
    block: readonly AbiParameter[],
    shape: LaunchShape,
  ) {
    const rank = block.at(-1)!;
    const blockBytes = rank.offset + rank.bytes;
    this.#cluster = module.cluster;
    this.#home = home;
    this.#name = entryName(module);
    this.#function = loaded;
    this.#launch = home.context.driver.cuLaunchKernelEx;
    this.#parameters = new Map(
      block.slice(0, -1).map((one) => {
        const argument = `${this.#name}.${one.name}`;
        return [one.name, { ...one, form: formOf(one), argument }];
      }),
    );
    this.#unset = new Set(this.#parameters.keys());

    const attributeAt = configBytes;
    const extraAt = attributeAt + attributeBytes;
    const sizeAt = extraAt + extraBytes;
    this.#base = sizeAt + 16; // a multiple of 16, which vector parameters need
    // Memory of an ArrayBuffer of this size does not move, and lives as long as this launcher does.
    const memory = new ArrayBuffer(this.#base + Math.max(blockBytes, 16));
    this.#view = new DataView(memory);
    this.#words = new Uint32Array(memory, 0, this.#base / 4);
    const address = addressOf(memory);
    this.#config = address;
    this.#extra = address + extraAt;

    const words = this.#words;
    words.set([1, 1, 1, shape.block, 1, 1], config.gridX);
    words[config.shared] = dynamicSharedBytes(module.shared);
    this.#writeAddress(config.attributes * 4, address + attributeAt);
    words[config.count] = shape.programmatic ? 1 : 0;
    words[attributeAt / 4] = programmaticStreamSerialization;
    words[attributeAt / 4 + 2] = 1;
    words[extraAt / 4] = bufferPointer;
    this.#writeAddress(extraAt + 8, address + this.#base);
    words[extraAt / 4 + 4] = bufferSize;
    this.#writeAddress(extraAt + 24, address + sizeAt);
    words[sizeAt / 4] = blockBytes;
    this.setGrid(shape.grid);
    this.#view.setUint32(this.#base + rank.offset, requireRank(shape.rank), true);
  }

  set(name: string, value: number | bigint): void {
    const { argument, form, offset } = this.#find(name);
    const at = this.#base + offset;
    switch (form) {
      case 'u32':
        this.#view.setUint32(at, requireScalar(argument, form, value), true);
        break;
      case 'i32':
        this.#view.setInt32(at, requireScalar(argument, form, value), true);
        break;
      case 'bool':
        this.#view.setUint8(at, requireScalar(argument, form, value));
        break;
      case 'f32':
        this.#view.setFloat32(at, requireScalar(argument, form, value), true);
        break;
      case 'u64':
      case 'pointer': {
        const word = requireScalar(argument, 'u64', value);
        if (typeof word === 'bigint') this.#view.setBigUint64(at, word, true);
        else this.#writeAddress(at, word);
        break;
      }
      default:
        throw this.#unfit(name, value, form === 'peers' ? 'set with setWindow' : 'set with setTensor');
    }
    this.#unset.delete(name);
  }

  setWindow(name: string, window: Window): void {
    const parameter = this.#find(name);
    if (parameter.kind !== 'peers') throw this.#unfit(name, 'a window', 'set with set');
    requireWindow(parameter.argument, window, parameter.bytes / 8);
    for (let rank = 0; rank < window.bases.length; rank++) {
      this.#writeAddress(this.#base + parameter.offset + 8 * rank, window.bases[rank]!);
    }
    this.#unset.delete(name);
  }

  setTensor(name: string, tensor: Tensor): void {
    const { type, offset } = this.#find(name);
    if (type.kind !== 'tensorMap') throw this.#unfit(name, 'a tensor', 'set with set');
    const strided = requireTensor(`${this.#name}.${name}`, tensor, type);
    const { context } = this.#home;
    context.use();
    new Uint8Array(this.#view.buffer).set(
      encodeTensorMap(context.driver, strided, type.tile, name),
      this.#base + offset,
    );
    this.#unset.delete(name);
  }

  setGrid(grid: number): void {
    this.#words[config.gridX] = requireGrid(grid, maxGrid, this.#cluster);
  }

  launch(stream: Stream): void {
    if (this.#unset.size !== 0) {
      throw new HeddleError(
        'HEDDLE_ARGUMENT',
        `${this.#name} is launched without its parameters ${[...this.#unset].join(', ')}; set them first`,
      );
    }
    const { handle, low, high, home } = streamOf(stream);
    if (home !== this.#home) {
      throw new ArgumentError(
        'stream',
        `stream ${handle} of another device`,
        'a stream of the kernel’s device',
      );
    }
    home.requireLive();
    home.context.use();
    this.#words[config.stream] = low;
    this.#words[config.stream + 1] = high;
    const result = this.#launch(this.#config, this.#function, 0, this.#extra);
    if (result !== 0) check(result, 'cuLaunchKernelEx', `launching ${this.#name}`);
  }

  #writeAddress(at: number, value: number): void {
    this.#view.setUint32(at, value, true);
    this.#view.setUint32(at + 4, value / 2 ** 32, true);
  }

  #find(name: string): Parameter {
    const parameter = this.#parameters.get(name);
    if (parameter !== undefined) return parameter;
    const known = [...this.#parameters.keys()].join(', ') || 'no parameters';
    throw new ArgumentError('name', name, `a parameter of ${this.#name}: ${known}`);
  }

  #unfit(name: string, value: unknown, mustBe: string): ArgumentError {
    return new ArgumentError(`${this.#name}.${name}`, value, mustBe);
  }
}
