/** One kernel of a PTX module, as a simulated GPU loads it. */
import { ArgumentError, requireInteger, requireObject, requireText } from '../../base/errors.js';
import type { TensorMapParam } from '../kernel.js';
import { mostShared } from '../shared.js';
import type { Layout } from '../types.js';
import { withCalls } from './calls.js';
import { demangled } from './demangle.js';
import {
  PtxError,
  type PtxFunction,
  type PtxModule,
  type PtxText,
  type PtxVariable,
  placeOfLine,
  ptxBytes,
} from './module.js';
import { parsePtx } from './parse.js';

export interface PtxParameter {
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  /** The type that `set` takes; null where it is a struct or an array, whose bytes the host sets. */
  readonly type: PtxVariable['type'] | null;
}

export interface PtxKernel {
  readonly kind: 'ptx';
  readonly name: string;
  readonly module: PtxModule;
  readonly entry: PtxFunction;
  readonly params: readonly PtxParameter[];
  /** The parameter that is the launch's rank; null where the host sets all. */
  readonly rankParameter: string | null;
  readonly parameterBytes: number;
  readonly sharedBytes: number;
  /** The layout of the window that a parameter takes, for findings. */
  readonly layouts: ReadonlyMap<string, Layout>;
  readonly maxThreads: number;
  /** Blocks of a cluster, and how many along x, y and z. */
  readonly cluster: number;
  readonly clusterExtents: readonly number[];
  /** The boxes of the tensor whose map a parameter takes. */
  readonly tensors: ReadonlyMap<string, TensorMapParam>;
}

export interface PtxKernelOptions {
  /** Names under which the host sets the parameters, in their order; by default `param_0`, `param_1` and so on. */
  readonly params?: readonly string[];
  /** The one of them that each launch sets to its own rank. */
  readonly rankParameter?: string;
  /** Bytes of dynamic shared memory, which `extern __shared__` leaves to the launch. Default 0. */
  readonly sharedBytes?: number;
  /** Its name in findings. Default: its name in the PTX. */
  readonly name?: string;
  /** Blocks of a cluster, or so many along x, y and z, where the launch says so. Default: what the kernel says, or 1. */
  readonly cluster?: number | readonly number[];
  /** The boxes of each parameter that is a tensor map. A launcher's `setTensor` sets it. */
  readonly tensors?: Readonly<Record<string, TensorMapParam>>;
  /** The layout of each parameter that is a window, so that findings name fields. */
  readonly layouts?: Readonly<Record<string, Layout>>;
}

export interface PtxProgram {
  readonly module: PtxModule;
  readonly kernels: readonly string[];
  /** A kernel by its name, or by the one in C++, in which `*` stands for anything: `reduce<*, 512>`. */
  kernel(name: string, options?: PtxKernelOptions): PtxKernel;
}

/** The most threads that any GPU lets a block have. */
const mostThreads = 1024;
const mostCluster = 16;

/** Reads the text of a PTX file, which findings call `file`; or of several, which call each other's functions. */
export function ptx(text: string | readonly PtxText[], file = 'kernel.ptx'): PtxProgram {
  const texts = typeof text === 'string' ? [{ file, text }] : text;
  if (!Array.isArray(texts))
    throw new ArgumentError('text', text, 'the text of a PTX file, or a list of files');
  for (const [i, one] of texts.entries()) {
    requireObject(`text[${i}]`, one, '{ file, text }');
    requireText(`text[${i}].file`, one.file);
    requireText(`text[${i}].text`, one.text);
  }
  const module = parsePtx(texts);
  const entries = [...module.functions.values()].filter(({ isEntry }) => isEntry).map(({ name }) => name);
  return {
    module,
    kernels: entries,
    kernel: (name, options = {}) => kernelOf(module, entries, name, options),
  };
}

function kernelOf(
  module: PtxModule,
  entries: readonly string[],
  name: string,
  options: PtxKernelOptions,
): PtxKernel {
  requireText('name', name);
  requireObject('options', options);
  const found = entries.find((entry) => entry === name) ?? onlyLike(entries, name);
  if (found === undefined) {
    const known = entries.map(sourceName).join('; ');
    throw new ArgumentError('name', name, `one of ${known || 'none: no kernel is in it'}`);
  }
  const entry = withCalls(module, module.functions.get(found)!);
  const names = options.params ?? entry.params.map((param) => param.name.replace(`${found}_`, ''));
  if (names.length !== entry.params.length)
    throw new ArgumentError('params', names, `the names of its ${entry.params.length} parameters`);
  const { rankParameter = null } = options;
  const along = [options.cluster ?? entry.cluster ?? 1].flat();
  const clusterExtents = [0, 1, 2].map((axis) => requireInteger('cluster', along[axis] ?? 1, 1, mostCluster));
  const cluster = clusterExtents.reduce((product, one) => product * one, 1);
  if (rankParameter !== null && !names.includes(rankParameter))
    throw new ArgumentError('rankParameter', rankParameter, `one of ${names.join(', ')}`);
  let end = 0;
  const params = entry.params.map(({ type, align, bytes, line }, i): PtxParameter => {
    if (bytes === null) throw new PtxError(placeOfLine(module, line), 'a parameter must say how long it is');
    const offset = Math.ceil(end / align) * align;
    end = offset + bytes;
    return { name: names[i]!, offset, bytes, type: bytes === ptxBytes[type] && type !== 'b8' ? type : null };
  });
  return {
    kind: 'ptx',
    name: options.name ?? found,
    module,
    entry,
    params,
    rankParameter,
    parameterBytes: end,
    sharedBytes: requireInteger('sharedBytes', options.sharedBytes ?? 0, 0, mostShared),
    layouts: new Map(Object.entries(options.layouts ?? {})),
    maxThreads: entry.maxThreads ?? mostThreads,
    cluster: requireInteger('cluster', cluster, 1, mostCluster),
    clusterExtents,
    tensors: new Map(Object.entries(options.tensors ?? {})),
  };
}

/** The name in C++, with the types of its parameters; other names stay as they are. */
export function sourceName(entry: string): string {
  const { name, params } = demangled(entry);
  return params === null ? name : `${name}(${params})`;
}

/** The one whose name in C++ is this one, where `*` stands for anything: `_Z6reduceILi4EEvPf` for `reduce`, `reduce<*>` and `reduce<4>`. */
function onlyLike(entries: readonly string[], name: string): string | undefined {
  const pattern = name.replace(/[\\^$.|?+()[\]{}]/g, '\\$&').replaceAll('*', '.*');
  const like = new RegExp(`^(.*::)?${pattern}(<.*>)?$`);
  const all = entries.filter((entry) => like.test(demangled(entry).name));
  return all.length === 1 ? all[0] : undefined;
}
