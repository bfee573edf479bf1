import { requireInteger, UnavailableError } from '../../base/errors.js';
import * as native from '../../base/native/index.js';
import { CudaError, remedies } from './errors.js';

/** Oldest driver API that has every call below: launches with attributes came with 11.8. */
const oldestDriver = 12_000;

// Where a call has a newer version under a suffixed name, that is the one that cuda.h maps to.
const signatures = {
  cuDeviceGetCount: ['i32', 'address'],
  cuDeviceGetName: ['i32', 'address', 'i32', 'i32'],
  cuDeviceGetAttribute: ['i32', 'address', 'i32', 'i32'],
  cuDeviceGetUuid_v2: ['i32', 'address', 'i32'],
  cuDeviceGetPCIBusId: ['i32', 'address', 'i32', 'i32'],
  cuDeviceTotalMem_v2: ['i32', 'address', 'i32'],
  cuDeviceCanAccessPeer: ['i32', 'address', 'i32', 'i32'],
  cuDeviceGetP2PAttribute: ['i32', 'address', 'i32', 'i32', 'i32'],
  cuDevicePrimaryCtxRetain: ['i32', 'address', 'i32'],
  cuDevicePrimaryCtxRelease_v2: ['i32', 'i32'],
  cuCtxSetCurrent: ['i32', 'address'],
  cuCtxEnablePeerAccess: ['i32', 'address', 'u32'],
  cuMemGetInfo_v2: ['i32', 'address', 'address'],
  cuMemAlloc_v2: ['i32', 'address', 'u64'],
  cuMemFree_v2: ['i32', 'address'],
  cuMemAllocAsync: ['i32', 'address', 'u64', 'address'],
  cuMemFreeAsync: ['i32', 'address', 'address'],
  cuMemHostAlloc: ['i32', 'address', 'u64', 'u32'],
  cuMemFreeHost: ['i32', 'address'],
  cuMemHostGetDevicePointer_v2: ['i32', 'address', 'address', 'u32'],
  cuPointerGetAttribute: ['i32', 'address', 'i32', 'address'],
  cuMemCreate: ['i32', 'address', 'u64', 'address', 'u64'],
  cuMemRelease: ['i32', 'u64'],
  cuMemAddressReserve: ['i32', 'address', 'u64', 'u64', 'address', 'u64'],
  cuMemAddressFree: ['i32', 'address', 'u64'],
  cuMemMap: ['i32', 'address', 'u64', 'u64', 'u64', 'u64'],
  cuMemUnmap: ['i32', 'address', 'u64'],
  cuMemSetAccess: ['i32', 'address', 'u64', 'address', 'u64'],
  cuMemGetAllocationGranularity: ['i32', 'address', 'address', 'i32'],
  cuMemExportToShareableHandle: ['i32', 'address', 'u64', 'i32', 'u64'],
  cuMemImportFromShareableHandle: ['i32', 'address', 'address', 'i32'],
  cuMemGetHandleForAddressRange: ['i32', 'address', 'address', 'u64', 'i32', 'u64'],
  cuFlushGPUDirectRDMAWrites: ['i32', 'i32', 'i32'],
  cuIpcGetMemHandle: ['i32', 'address', 'address'],
  cuIpcOpenMemHandle_v2: ['i32', 'address', native.byValue(64), 'u32'],
  cuIpcCloseMemHandle: ['i32', 'address'],
  cuMemcpyAsync: ['i32', 'address', 'address', 'u64', 'address'],
  cuMemcpyHtoD_v2: ['i32', 'address', 'buffer', 'u64'],
  cuMemcpyDtoH_v2: ['i32', 'buffer', 'address', 'u64'],
  cuMemsetD8Async: ['i32', 'address', 'u8', 'u64', 'address'],
  cuStreamCreate: ['i32', 'address', 'u32'],
  cuStreamDestroy_v2: ['i32', 'address'],
  cuStreamSynchronize: ['i32', 'address'],
  cuStreamQuery: ['i32', 'address'],
  cuStreamWaitEvent: ['i32', 'address', 'address', 'u32'],
  cuStreamBeginCapture_v2: ['i32', 'address', 'i32'],
  cuStreamEndCapture: ['i32', 'address', 'address'],
  cuStreamIsCapturing: ['i32', 'address', 'address'],
  cuEventCreate: ['i32', 'address', 'u32'],
  cuEventDestroy_v2: ['i32', 'address'],
  cuEventRecord: ['i32', 'address', 'address'],
  cuEventQuery: ['i32', 'address'],
  cuEventElapsedTime: ['i32', 'address', 'address', 'address'],
  cuModuleLoadData: ['i32', 'address', 'buffer'],
  cuModuleUnload: ['i32', 'address'],
  cuModuleGetFunction: ['i32', 'address', 'address', 'string'],
  cuModuleGetGlobal_v2: ['i32', 'address', 'address', 'address', 'string'],
  cuLinkCreate_v2: ['i32', 'u32', 'address', 'address', 'address'],
  cuLinkAddData_v2: ['i32', 'address', 'i32', 'buffer', 'u64', 'string', 'u32', 'address', 'address'],
  cuLinkComplete: ['i32', 'address', 'address', 'address'],
  cuLinkDestroy: ['i32', 'address'],
  cuFuncGetAttribute: ['i32', 'address', 'i32', 'address'],
  cuFuncSetAttribute: ['i32', 'address', 'i32', 'i32'],
  cuLaunchKernelEx: ['i32', 'address', 'address', 'address', 'address'],
  // Map, type, rank, address, then extents, strides, box and steps; interleaving, swizzle, promotion, what lies outside.
  cuTensorMapEncodeTiled: [
    ...['i32', 'address', 'i32', 'u32', 'address', 'address', 'address', 'address', 'address'],
    ...['i32', 'i32', 'i32', 'i32'],
  ],
  cuGraphInstantiateWithFlags: ['i32', 'address', 'address', 'u64'],
  cuGraphUpload: ['i32', 'address', 'address'],
  cuGraphLaunch: ['i32', 'address', 'address'],
  cuGraphExecDestroy: ['i32', 'address'],
  cuGraphDestroy: ['i32', 'address'],
} as const satisfies native.Signatures;

/** Missing in drivers before 12.4, which load a kernel's code with its module. */
const newer = {
  cuFuncLoad: ['i32', 'address'],
  // Kernel, index; then where the parameter lies in the block that a launch passes, and its bytes.
  cuFuncGetParamInfo: ['i32', 'address', 'u64', 'address', 'address'],
} as const satisfies native.Signatures;

/** `cuMemAlloc_v2` is called `cuMemAlloc`, as everybody does. */
type Plain<N> = N extends `${infer Base}_v2` ? Base : N;

/** The driver's functions, each returning its result code. */
type Calls = {
  readonly [N in keyof typeof signatures as Plain<N>]: native.NativeFunction<(typeof signatures)[N]>;
} & { readonly [N in keyof typeof newer]: native.NativeFunction<(typeof newer)[N]> | null };

/** The CUDA driver (libcuda.so.1), loaded and initialised. One per thread of the program. */
export type Driver = Calls & {
  /** The CUDA version that the driver implements: 13000 for 13.0. */
  readonly version: number;
  /** Memory for results of calls: 256 bytes that the next call may overwrite. */
  readonly out: Out;
};

/** A little native memory for results, read as numbers. */
export interface Out {
  readonly address: native.Address;
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
  // that waits for that very launch it would wait for ever. The driver reads this variable in cuInit.
  native.setEnvironment('CUDA_MODULE_LOADING', 'EAGER', false);

  const library = native.openLibrary(driverCandidates, driverRemedy);
  const out = createOut(256);
  const { cuDriverGetVersion, cuInit, cuGetErrorName } = library.functions({
    cuDriverGetVersion: ['i32', 'address'],
    cuInit: ['i32', 'u32'],
    cuGetErrorName: ['i32', 'i32', 'address'],
  });
  const version = cuDriverGetVersion(out.address) === 0 ? out.i32[0]! : 0;
  if (version < oldestDriver) {
    throw new UnavailableError(
      `The NVIDIA driver implements CUDA ${formatVersion(version)}; Heddle needs ${formatVersion(oldestDriver)}`,
      'Update the driver to 525 or newer',
    );
  }
  const name = createOut(16);
  resultName = (result) =>
    (cuGetErrorName(result, name.address) === 0 ? native.readString(name.number()) : null) ??
    `CUresult ${result}`;
  const initialised = cuInit(0);
  if (initialised !== 0) {
    const cause = failure('cuInit', initialised, '');
    throw new UnavailableError(`CUDA cannot be used here (${cause.message})`, driverRemedy, { cause });
  }
  const calls = Object.entries(library.functions(signatures)).map(
    ([symbol, call]) => [symbol.replace(/_v2$/, ''), call] as const,
  );
  return { ...Object.fromEntries(calls), ...library.optional(newer), version, out } as Driver;
}

let resultName = (result: number): string => `CUresult ${result}`;

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
  const { address, buffer } = native.allocate(bytes, 64);
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
  readonly #handle: native.Address;
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

// Remembers this thread's current context, so that a launch need not ask or set it. Each worker has its own copy
// of this module, as each thread has its own current context.
let current: native.Address | null = null;

/** To be called after foreign code on this thread may have changed the current CUDA context. */
export function forgetCurrentContext(): void {
  current = null;
}
