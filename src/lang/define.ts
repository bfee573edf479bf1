/** `kernel()` and `device()`: see kernel.ts for what a header and a body are. */
import { requireFunction, requireInteger, requireObject, requireThat, show } from '../base/errors.js';
import { deviceDefinition, deviceFunction } from './definition.js';
import { type Code, KernelError } from './diagnostics.js';
import { isIdentifier, isMemoryName, parameterNames, registerNames } from './header.js';
import type { IrModule } from './ir.js';
import type {
  Body,
  DeviceFunction,
  DeviceParams,
  DeviceReturn,
  OpaqueParam,
  ParamSpecs,
  ReturnValue,
  ScalarParam,
  UsingSpec,
} from './kernel.js';
import { lowerKernel } from './lower/module.js';
import { callSite, functionSource } from './source.js';
import { isTile } from './tile.js';

/** A kernel, specialised by its `using`. Give it to a device to load, or print it. */
export interface Kernel<P extends ParamSpecs = ParamSpecs> {
  readonly name: string;
  readonly params: P;
  /** The intermediate representation; compiled on the first call. Throws KernelError. */
  ir(): IrModule;
}

export interface KernelHeader<P extends ParamSpecs, U extends UsingSpec> {
  /** The name, which is also that of the kernel in CUDA: an identifier. */
  readonly name: string;
  /** Run-time arguments and their types. */
  readonly params: P;
  /** Compile-time values. */
  readonly using?: U;
  /** Most threads a block may be launched with; fewer leave more registers to each. Default 1024. */
  readonly maxThreads?: number;
  /**
   * Blocks of a cluster: so many, one behind the other in the grid, run at once and reach each other's shared memory. Default 1.
   * A launch has whole clusters.
   */
  readonly cluster?: ClusterSize;
}

/** The size that every GPU with clusters can hold. */
export type ClusterSize = 1 | 2 | 4 | 8;
const clusterSizes: readonly ClusterSize[] = [1, 2, 4, 8];

export interface DeviceHeader<P extends DeviceParams, U extends UsingSpec, R extends DeviceReturn> {
  /** Its name in messages and in printed CUDA; by default the name under which it comes through `using`. */
  readonly name?: string;
  readonly params: P;
  readonly using?: U;
  /** The type of the result; nothing by default. */
  readonly returns?: R;
}

const mostThreads = 1024;
type NoUsing = Record<never, never>;

/** Makes a kernel of a closed function. The function is never called: its text is compiled. */
export function kernel<P extends ParamSpecs, U extends UsingSpec = NoUsing>(
  header: KernelHeader<P, U>,
  body: Body<P, U>,
): Kernel<P> {
  requireObject('header', header);
  const { site, fail } = checkHeader(
    kernel,
    header,
    header.name,
    body,
    isKernelParam,
    `${kernelParams} or a list of these`,
  );
  const names = Object.entries(header.params).flatMap(([name, spec]) => parameterNames(name, spec));
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined)
    fail(
      'HK203',
      `two parameters are called ${twice}: one is an item of a list; give the other another name`,
    );
  const maxThreads = requireInteger('maxThreads', header.maxThreads ?? mostThreads, 1, mostThreads);
  const cluster = header.cluster ?? 1;
  requireThat(clusterSizes.includes(cluster), 'cluster', cluster, `one of ${clusterSizes.join(', ')}`);
  let module: IrModule | undefined;
  return {
    name: header.name,
    params: header.params,
    ir() {
      module ??= lowerKernel({
        name: header.name,
        params: header.params,
        using: header.using ?? {},
        source: functionSource(body.toString(), site),
        maxThreads,
        cluster,
      });
      return module;
    },
  };
}

/** Makes a function that bodies can call, having received it through their `using`. */
export function device<
  const P extends DeviceParams,
  U extends UsingSpec = NoUsing,
  const R extends DeviceReturn = 'void',
>(header: DeviceHeader<P, U, R>, body: Body<P, U, ReturnValue<R>>): DeviceFunction<P, R> {
  requireObject('header', header);
  const { site } = checkHeader(device, header, header.name ?? 'device', body, isDeviceParam, deviceParams);
  return deviceFunction('device function', {
    name: header.name ?? 'device function',
    named: header.name !== undefined,
    params: header.params,
    using: header.using ?? {},
    returns: header.returns ?? 'void',
    source: functionSource(body.toString(), site),
  });
}

/** Types cannot stop everyone: JavaScript callers, casts, values from JSON. `maker` is what they have called. */
export function checkHeader(
  maker: (...args: never[]) => unknown,
  header: { readonly params: unknown; readonly using?: unknown; readonly returns?: unknown },
  name: string,
  body: unknown,
  isParam: (spec: unknown) => boolean,
  known: string,
) {
  const site = callSite(maker);
  const fail = (code: Code, message: string): never => {
    const source = functionSource(typeof body === 'function' ? body.toString() : '', site);
    const { line, column } = source.position(0);
    // `show` also prints a symbol, which throws when it becomes a text by itself.
    const called = typeof name === 'string' ? name : show(name);
    throw new KernelError(called, [{ code, message, file: source.file, line, column, frame: '' }]);
  };
  requireFunction('body', body, 'a function (g, params, using) => { … }');
  if (!isIdentifier(name)) fail('HK203', `the name ${show(name)} must be an identifier`);
  if (!isRecord(header.params)) fail('HK201', 'params must be an object of parameter types');
  for (const [key, spec] of Object.entries(header.params ?? {})) {
    if (!isIdentifier(key)) fail('HK203', `the parameter name ${show(key)} must be an identifier`);
    if (!isParam(spec)) {
      fail('HK201', `the type of parameter ${key} is ${show(spec)}; it must be ${known}`);
    }
  }
  const { using = {}, returns = 'void' } = header;
  if (!isRecord(using)) fail('HK202', `using is ${show(using)}; it must be an object of compile-time values`);
  const wrong = notConstant(using, 'using', new Set());
  if (wrong !== undefined) fail('HK202', wrong);
  if (returns !== 'void' && !isDeviceParam(returns)) {
    fail('HK201', `returns is ${show(returns)}; it must be ${known}, or 'void'`);
  }
  return { site, fail };
}

export const scalars: readonly ScalarParam[] = ['i32', 'u32', 'u64', 'f32', 'bool'];
const opaques: readonly OpaqueParam[] = ['v16', 'bf16', 'f16', 'e4m3'];
const kernelParams = `${scalars.join(', ')}, pointer(…), peers(…), tensorMap(…)`;
const deviceParams = `${opaques.join(', ')}, ${kernelParams}, windowOf(…), tiles(…), registers(…), list(…), record(…), callable(…) or constant()`;

const isRecord = (value: unknown): value is { readonly [key: string]: unknown } =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const isScalar = (spec: unknown): boolean => scalars.some((scalar) => scalar === spec);
const isLayout = (of: unknown): boolean => isRecord(of) && Array.isArray(of.fields);
const areParams = (specs: unknown): boolean => isRecord(specs) && Object.values(specs).every(isDeviceParam);

/** Checks of the parts of each kind of parameter. */
const kinds: Readonly<Record<string, (parts: Readonly<Record<string, unknown>>) => boolean>> = {
  pointer: ({ to }) => isMemoryName(to),
  peers: ({ layout }) => isLayout(layout),
  window: ({ layout }) => isLayout(layout),
  tensorMap: ({ tile }) => isTile(tile),
  tiles: ({ tile }) => isTile(tile),
  registers: ({ of }) => registerNames.some((name) => name === of),
  list: ({ of, length }) => isDeviceParam(of) && typeof length === 'number',
  record: ({ of }) => areParams(of),
  callable: ({ params, returns }) => areParams(params) && (returns === 'void' || isDeviceParam(returns)),
  constant: () => true,
};

/** Is this a scalar, or a parameter of one of these kinds? */
const isParam = (spec: unknown, of: readonly string[]): boolean =>
  isScalar(spec) ||
  (isRecord(spec) && of.some((kind) => kind === spec.kind) && kinds[String(spec.kind)]!(spec));

/** The value that a host passes as one argument. */
export const isPassed = (spec: unknown): boolean => isParam(spec, ['pointer']);
const isKernelParam = (spec: unknown): boolean =>
  isParam(spec, ['pointer', 'peers', 'tensorMap']) ||
  (isParam(spec, ['list']) && isRecord(spec) && isParam(spec.of, ['pointer', 'tensorMap']));
const isDeviceParam = (spec: unknown): boolean =>
  opaques.some((opaque) => opaque === spec) || isParam(spec, Object.keys(kinds));

/** Why the compiler cannot know this value; undefined if it can. */
function notConstant(value: unknown, path: string, above: ReadonlySet<unknown>): string | undefined {
  if (['number', 'bigint', 'boolean', 'string'].includes(typeof value)) return undefined;
  if (deviceDefinition(value) !== undefined) return undefined;
  if (typeof value === 'function') return `${path} is an ordinary function; make it a device()`;
  if (typeof value !== 'object' || value === null) {
    return `${path} is ${show(value)}; it must be a number, flag, text, list, plain object or device function`;
  }
  if (above.has(value)) return `${path} contains itself`;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && prototype !== Object.prototype && prototype !== null) {
    return `${path} is a ${show(value)}; a compile-time object must be a plain one`;
  }
  const inside = new Set([...above, value]);
  for (const [key, item] of Object.entries(value)) {
    const wrong = notConstant(item, Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`, inside);
    if (wrong !== undefined) return wrong;
  }
  return undefined;
}
