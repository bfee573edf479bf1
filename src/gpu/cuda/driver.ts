import { requireInteger, UnavailableError } from '../../base/errors.js';
import {
  type Address,
  allocate,
  byValue,
  type Library,
  type NativeType,
  openLibrary,
  readString,
} from '../../base/native/index.js';
import { CudaError, remedies } from './errors.js';

/** Oldest driver API that has every call below: launches with attributes came with 11.8. */
const oldestDriver = 12_000;

type Args = readonly NativeType[];

// Where a call has a newer version under a suffixed name, that is the one that cuda.h maps to.
const signatures = {
  cuDeviceGetCount: ['address'],
  cuDeviceGetName: ['address', 'i32', 'i32'],
  cuDeviceGetAttribute: ['address', 'i32', 'i32'],
  cuDeviceGetUuid_v2: ['address', 'i32'],
  cuDeviceGetPCIBusId: ['address', 'i32', 'i32'],
  cuDeviceTotalMem_v2: ['address', 'i32'],
  cuDeviceCanAccessPeer: ['address', 'i32', 'i32'],
  cuDeviceGetP2PAttribute: ['address', 'i32', 'i32', 'i32'],
  cuDevicePrimaryCtxRetain: ['address', 'i32'],
  cuDevicePrimaryCtxRelease_v2: ['i32'],
  cuCtxSetCurrent: ['address'],
  cuCtxEnablePeerAccess: ['address', 'u32'],
  cuMemGetInfo_v2: ['address', 'address'],
  cuMemAlloc_v2: ['address', 'u64'],
  cuMemFree_v2: ['address'],
  cuMemAllocAsync: ['address', 'u64', 'address'],
  cuMemFreeAsync: ['address', 'address'],
  cuMemHostAlloc: ['address', 'u64', 'u32'],
  cuMemFreeHost: ['address'],
  cuMemHostGetDevicePointer_v2: ['address', 'address', 'u32'],
  cuPointerGetAttribute: ['address', 'i32', 'address'],
  cuMemCreate: ['address', 'u64', 'address', 'u64'],
  cuMemRelease: ['u64'],
  cuMemAddressReserve: ['address', 'u64', 'u64', 'address', 'u64'],
  cuMemAddressFree: ['address', 'u64'],
  cuMemMap: ['address', 'u64', 'u64', 'u64', 'u64'],
  cuMemUnmap: ['address', 'u64'],
  cuMemSetAccess: ['address', 'u64', 'address', 'u64'],
  cuMemGetAllocationGranularity: ['address', 'address', 'i32'],
  cuMemExportToShareableHandle: ['address', 'u64', 'i32', 'u64'],
  cuMemImportFromShareableHandle: ['address', 'address', 'i32'],
  cuMemGetHandleForAddressRange: ['address', 'address', 'u64', 'i32', 'u64'],
  cuFlushGPUDirectRDMAWrites: ['i32', 'i32'],
  cuIpcGetMemHandle: ['address', 'address'],
  cuIpcOpenMemHandle_v2: ['address', byValue(64), 'u32'],
  cuIpcCloseMemHandle: ['address'],
  cuMemcpyAsync: ['address', 'address', 'u64', 'address'],
  cuMemcpyHtoD_v2: ['address', 'buffer', 'u64'],
  cuMemcpyDtoH_v2: ['buffer', 'address', 'u64'],
  cuMemsetD8Async: ['address', 'u8', 'u64', 'address'],
  cuStreamCreate: ['address', 'u32'],
  cuStreamDestroy_v2: ['address'],
  cuStreamSynchronize: ['address'],
  cuStreamQuery: ['address'],
  cuStreamWaitEvent: ['address', 'address', 'u32'],
  cuStreamBeginCapture_v2: ['address', 'i32'],
  cuStreamEndCapture: ['address', 'address'],
  cuStreamIsCapturing: ['address', 'address'],
  cuEventCreate: ['address', 'u32'],
  cuEventDestroy_v2: ['address'],
  cuEventRecord: ['address', 'address'],
  cuEventQuery: ['address'],
  cuEventElapsedTime: ['address', 'address', 'address'],
  cuModuleLoadData: ['address', 'buffer'],
  cuModuleUnload: ['address'],
  cuModuleGetFunction: ['address', 'address', 'string'],
  cuModuleGetGlobal_v2: ['address', 'address', 'address', 'string'],
  cuLinkCreate_v2: ['u32', 'address', 'address', 'address'],
  cuLinkAddData_v2: ['address', 'i32', 'buffer', 'u64', 'string', 'u32', 'address', 'address'],
  cuLinkComplete: ['address', 'address', 'address'],
  cuLinkDestroy: ['address'],
  cuFuncGetAttribute: ['address', 'i32', 'address'],
  cuFuncSetAttribute: ['address', 'i32', 'i32'],
  cuLaunchKernelEx: ['address', 'address', 'address', 'address'],
  cuTensorMapEncodeTiled: [
    ...[
      'address',
      'i32',
      'u32',
      'address',
      'address',
      'address',
      'address',
      'address',
      'i32',
      'i32',
      'i32',
      'i32',
    ],
  ],
  cuGraphInstantiateWithFlags: ['address', 'address', 'u64'],
  cuGraphUpload: ['address', 'address'],
  cuGraphLaunch: ['address', 'address'],
  cuGraphExecDestroy: ['address'],
  cuGraphDestroy: ['address'],
} as const satisfies Record<string, Args>;

/** How a parameter looks from JavaScript. */
type JsOf<T> = T extends 'buffer'
  ? ArrayBufferView
  : T extends 'string'
    ? string
    : T extends 'u64'
      ? number | bigint
      : T extends { readonly bytes: number }
        ? { readonly bytes: Uint8Array }
        : number;
type JsArgs<A extends Args> = { -readonly [I in keyof A]: JsOf<A[I]> };
/** `cuMemAlloc_v2` is called `cuMemAlloc`, as everybody does. */
type Plain<N> = N extends `${infer Base}_v2` ? Base : N;

/** The driver's functions, each returning its result code. */
type Calls = {
  readonly [N in keyof typeof signatures as Plain<N>]: (...args: JsArgs<(typeof signatures)[N]>) => number;
};

/** The CUDA driver (libcuda.so.1), loaded and initialised. One per thread of the program. */
export interface Driver extends Calls {
  /** The CUDA version that the driver implements: 13000 for 13.0. */
  readonly version: number;
  /** Loads a kernel's code now; missing in drivers before 12.4, which load it with its module. */
  readonly cuFuncLoad: ((kernel: Address) => number) | null;
  /** Where calls store their results: 256 bytes that the next call may overwrite. */
  readonly out: Out;
}

/** A little native memory for results, read as numbers. */
export interface Out {
  readonly address: Address;
  readonly i32: Int32Array;
  readonly f32: Float32Array;
  readonly bytes: Uint8Array;
  readonly u64: BigUint64Array;
  /** The pointer or size stored at 8-byte word `index`. */
  number(index?: number): number;
}

let loaded: Driver | undefined;

/**
 * The driver; loads it at the first call.
 * @throws UnavailableError where there is no driver, no GPU, or the driver is too old.
 */
export function driver(): Driver {
  loaded ??= load();
  return loaded;
}

/** The CUDA version of the driver where it is loaded already; null does not mean that there is none. */
export function loadedDriverVersion(): number | null {
  return loaded?.version ?? null;
}

export const driverCandidates = ['libcuda.so.1', '/usr/lib/wsl/lib/libcuda.so.1'] as const;
export const driverRemedy =
  'Install the NVIDIA driver, or run the container with its GPUs (docker run --gpus all). ' +
  'Without a GPU, use the simulator: World.local({ ranks, device: "sim" }), `heddle run --device sim`';

function load(): Driver {
  // Lazy loading brings a kernel's code in at its first launch and waits for the GPU to do so; behind a kernel
  // that waits for that very launch it would wait for ever. The driver reads this variable in cuInit, from the
  // C environment: in a worker, process.env is only a copy, so set it there directly.
  const libc = openLibrary(null, '');
  const setenv = libc.declare<(name: string, value: string, overwrite: number) => number>('setenv', 'i32', [
    'string',
    'string',
    'i32',
  ]);
  setenv('CUDA_MODULE_LOADING', 'EAGER', 0);

  const library = openLibrary(driverCandidates, driverRemedy);
  const out = createOut(256);
  const cuDriverGetVersion = library.declare<(version: Address) => number>('cuDriverGetVersion', 'i32', [
    'address',
  ]);
  const version = cuDriverGetVersion(out.address) === 0 ? out.i32[0]! : 0;
  if (version < oldestDriver) {
    throw new UnavailableError(
      `The NVIDIA driver implements CUDA ${formatVersion(version)}; Heddle needs ${formatVersion(oldestDriver)}`,
      'Update the driver to 525 or newer',
    );
  }
  const cuInit = library.declare<(flags: number) => number>('cuInit', 'i32', ['u32']);
  resultName = nameReader(library);
  const initialised = cuInit(0);
  if (initialised !== 0) {
    const cause = failure('cuInit', initialised, '');
    throw new UnavailableError(`CUDA cannot be used here (${cause.message})`, driverRemedy, { cause });
  }
  const calls: Record<string, unknown> = {};
  for (const [symbol, parameters] of Object.entries(signatures)) {
    calls[symbol.replace(/_v2$/, '')] = library.declare(symbol, 'i32', parameters);
  }
  const cuFuncLoad = library.has('cuFuncLoad')
    ? library.declare<(kernel: Address) => number>('cuFuncLoad', 'i32', ['address'])
    : null;
  return { ...(calls as unknown as Calls), version, cuFuncLoad, out };
}

let resultName = (result: number): string => `CUresult ${result}`;

function nameReader(library: Library): (result: number) => string {
  const get = library.declare<(result: number, name: Address) => number>('cuGetErrorName', 'i32', [
    'i32',
    'address',
  ]);
  const out = createOut(16);
  return (result) =>
    (get(result, out.address) === 0 ? readString(out.number()) : null) ?? `CUresult ${result}`;
}

/** Throws a CudaError unless `result` is 0. `doing` says what for: 'allocating 1.5 GiB for the receive window'. */
export function check(result: number, call: string, doing = ''): void {
  if (result !== 0) throw failure(call, result, doing);
}

/** The error for a driver result, with what to do about it. */
export function failure(call: string, result: number, doing: string): CudaError {
  const remedy = remedies[result] ?? '';
  return new CudaError(call, result, resultName(result), [doing, remedy].filter(Boolean).join('; '));
}

/** For Heddle itself: native memory for results. It is never freed: there is one per use in the program. */
export function createOut(bytes: number): Out {
  const { address, buffer } = allocate(bytes, 64);
  const words = new Uint32Array(buffer);
  return {
    address,
    i32: new Int32Array(buffer),
    f32: new Float32Array(buffer),
    bytes: new Uint8Array(buffer),
    u64: new BigUint64Array(buffer),
    number: (index = 0) => words[2 * index]! + words[2 * index + 1]! * 2 ** 32,
  };
}

/** 13000 → '13.0'. */
export function formatVersion(version: number): string {
  requireInteger('version', version, -(2 ** 31), 2 ** 31 - 1);
  return version <= 0
    ? 'an unknown version'
    : `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
}

/** The primary context of one GPU, which all CUDA code of a process shares. */
export class Context {
  readonly ordinal: number;
  readonly driver: Driver;
  readonly #handle: Address;
  #released = false;

  constructor(ordinal: number) {
    this.driver = driver();
    this.ordinal = ordinal;
    const { out, cuDevicePrimaryCtxRetain } = this.driver;
    check(
      cuDevicePrimaryCtxRetain(out.address, ordinal),
      'cuDevicePrimaryCtxRetain',
      `opening GPU ${ordinal}`,
    );
    this.#handle = out.number();
    this.use();
  }

  /** Makes this the current context of the thread; every other call of the driver works on the current one. */
  use(): void {
    if (current === this.#handle) return;
    check(this.driver.cuCtxSetCurrent(this.#handle), 'cuCtxSetCurrent', `GPU ${this.ordinal}`);
    current = this.#handle;
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    if (current === this.#handle) forgetCurrentContext();
    check(this.driver.cuDevicePrimaryCtxRelease(this.ordinal), 'cuDevicePrimaryCtxRelease');
  }
}

// What this thread's current context is, so that a launch need not ask or set it. Each worker has its own copy
// of this module, as each thread has its own current context.
let current: Address | null = null;

/** To be called after foreign code on this thread may have changed the current CUDA context. */
export function forgetCurrentContext(): void {
  current = null;
}
