import { requireInteger, UnavailableError } from '../../base/errors.js';
import { hardwareOf, type IrModule } from '../../lang/index.js';
import { check, driver } from './driver.js';

/** The driver's facts about one GPU. Asking creates no context on it. */
export interface Gpu {
  readonly ordinal: number;
  readonly name: string;
  /** '9.0' as [9, 0]. */
  readonly capability: readonly [major: number, minor: number];
  /** The 16 bytes that name this GPU on this machine in every process, in hexadecimal. */
  readonly uuid: string;
  /** '0000:1b:00.0' */
  readonly pciBusId: string;
  readonly memoryBytes: number;
  readonly multiprocessors: number;
  /** The highest clock of its multiprocessors. */
  readonly clockMHz: number;
  readonly l2Bytes: number;
  /** Most shared memory of a block, when a kernel asks for more than the usual 48 KiB. */
  readonly sharedBytesPerBlock: number;
  /** Virtual memory management, which windows between GPUs are made of. */
  readonly virtualMemory: boolean;
  /** Allocations of virtual memory can be handed to another process as a file descriptor. */
  readonly posixHandles: boolean;
  /** Allocations can be handed to a process of another host, so the driver says: only trying tells (`probeFabric`). */
  readonly fabricHandles: boolean;
  /** Allocations can be read and written by a NIC. */
  readonly rdmaMemory: boolean;
  /**
   * `ordersNics`: a kernel that has heard of a write of a NIC sees its bytes. `flushesNics`: it does so behind a
   * flush by the host.
   */
  readonly ordersNics: boolean;
  readonly flushesNics: boolean;
  /** Host memory can be mapped beside its own; and the node of it that is nearest. */
  readonly hostVirtualMemory: boolean;
  readonly hostNode: number;
}

const attribute = {
  clockKHz: 13,
  multiprocessors: 16,
  l2Bytes: 38,
  major: 75,
  minor: 76,
  sharedOptIn: 97,
  virtualMemory: 102,
  posixHandles: 103,
  rdmaWithVirtualMemory: 110,
  rdmaFlushOptions: 117,
  rdmaWritesOrdering: 118,
  fabricHandles: 128,
  hostNode: 134,
  hostVirtualMemory: 141,
} as const;

/** CUGPUDirectRDMAWritesOrdering, CUflushGPUDirectRDMAWritesOptions. */
const orderedForOwner = 100;
const flushByHost = 1;

/** Number of GPUs that this process may use. @throws UnavailableError where there is no driver. */
export function countGpus(): number {
  const { out, cuDeviceGetCount } = driver();
  check(cuDeviceGetCount(out.address), 'cuDeviceGetCount');
  return out.i32[0]!;
}

/** Counts the GPUs of this machine; 0 where there is no driver. */
export function gpusHere(): number {
  try {
    return countGpus();
  } catch (error) {
    if (error instanceof UnavailableError) return 0;
    throw error;
  }
}

export function describeGpu(ordinal: number): Gpu {
  requireOrdinal('ordinal', ordinal);
  const d = driver();
  const { out } = d;
  const get = (id: number) => {
    check(d.cuDeviceGetAttribute(out.address, id, ordinal), 'cuDeviceGetAttribute', `GPU ${ordinal}`);
    return out.i32[0]!;
  };
  /** Reads an attribute that drivers before 12.3 do not know; 0 from them. */
  const getNewer = (id: number) => (d.cuDeviceGetAttribute(out.address, id, ordinal) === 0 ? out.i32[0]! : 0);
  check(d.cuDeviceGetName(out.address, 128, ordinal), 'cuDeviceGetName', `GPU ${ordinal}`);
  const name = text(out.bytes);
  check(d.cuDeviceGetPCIBusId(out.address, 64, ordinal), 'cuDeviceGetPCIBusId', `GPU ${ordinal}`);
  const pciBusId = text(out.bytes).toLowerCase();
  check(d.cuDeviceGetUuid(out.address, ordinal), 'cuDeviceGetUuid', `GPU ${ordinal}`);
  const uuid = Buffer.from(out.bytes.subarray(0, 16)).toString('hex');
  check(d.cuDeviceTotalMem(out.address, ordinal), 'cuDeviceTotalMem', `GPU ${ordinal}`);
  const memoryBytes = out.number();
  return {
    ordinal,
    name,
    capability: [get(attribute.major), get(attribute.minor)],
    uuid,
    pciBusId,
    memoryBytes,
    multiprocessors: get(attribute.multiprocessors),
    clockMHz: get(attribute.clockKHz) / 1000,
    l2Bytes: get(attribute.l2Bytes),
    sharedBytesPerBlock: get(attribute.sharedOptIn),
    virtualMemory: get(attribute.virtualMemory) === 1,
    posixHandles: get(attribute.posixHandles) === 1,
    fabricHandles: getNewer(attribute.fabricHandles) === 1,
    rdmaMemory: get(attribute.rdmaWithVirtualMemory) === 1,
    ordersNics: get(attribute.rdmaWritesOrdering) >= orderedForOwner,
    flushesNics: (get(attribute.rdmaFlushOptions) & flushByHost) !== 0,
    hostVirtualMemory: getNewer(attribute.hostVirtualMemory) === 1,
    hostNode: Math.max(0, getNewer(attribute.hostNode)),
  };
}

export function listGpus(): readonly Gpu[] {
  return Array.from({ length: countGpus() }, (_, ordinal) => describeGpu(ordinal));
}

/** How many GPUs there are is the driver's to say. */
function requireOrdinal(argument: string, ordinal: number): void {
  requireInteger(argument, ordinal, 0, 1023);
}

/** Whether kernels on GPU `from` may read and write the memory of GPU `to`. */
export function canAddress(from: number, to: number): boolean {
  requireOrdinal('from', from);
  requireOrdinal('to', to);
  if (from === to) return true;
  const { out, cuDeviceCanAccessPeer } = driver();
  check(cuDeviceCanAccessPeer(out.address, from, to), 'cuDeviceCanAccessPeer', `GPU ${from} to GPU ${to}`);
  return out.i32[0] === 1;
}

/** Whether atomic operations of GPU `from` on memory of GPU `to` are carried out there (NVLink; not over PCIe). */
export function hasPeerAtomics(from: number, to: number): boolean {
  if (from === to) return true;
  const nativeAtomicSupported = 3;
  const { out, cuDeviceGetP2PAttribute } = driver();
  const result = cuDeviceGetP2PAttribute(out.address, nativeAtomicSupported, from, to);
  check(result, 'cuDeviceGetP2PAttribute', `GPU ${from} to GPU ${to}`);
  return out.i32[0] === 1;
}

const oldest = 8;

/** Requires the capability that all kernels need. @throws UnavailableError */
export function requireCapability([major, minor]: Gpu['capability'], whose: string): void {
  if (major >= oldest) return;
  throw new UnavailableError(
    `${whose} has compute capability ${major}.${minor}`,
    `Heddle’s kernels need ${oldest}.0 (Ampere) or newer`,
  );
}

/** Requires the capability that all kernels need, and that the operations of this one need. @throws UnavailableError */
export function requireHardware(module: IrModule, capability: Gpu['capability'], whose: string): void {
  requireCapability(capability, whose);
  const [major, minor] = capability;
  const needs = hardwareOf(module);
  if (needs === null) return;
  const [which, has] = {
    hopper: ['9.0 (Hopper) alone', major === 9] as const,
    'hopper and later': ['9.0 (Hopper) and later', major >= 9] as const,
    'ada and later': ['8.9 (Ada) and later', major >= 9 || (major === 8 && minor >= 9)] as const,
  }[needs.only];
  if (has) return;
  throw new UnavailableError(
    `${module.name} uses ${needs.because}, which GPUs of compute capability ${which} have; ${whose} has ${major}.${minor}`,
    'Use a kernel without it on this GPU',
  );
}

/** The compiler's name for a GPU's instruction set; from Hopper on with the features of that chip alone (TMA). */
export function architecture([major, minor]: Gpu['capability']): string {
  return `sm_${major}${minor}${major >= 9 ? 'a' : ''}`;
}

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.subarray(0, bytes.indexOf(0))).toString('utf8');
}

export function formatBytes(bytes: number): string {
  requireInteger('bytes', bytes, 0, Number.MAX_SAFE_INTEGER);
  for (const [unit, size] of [
    ['GiB', 2 ** 30],
    ['MiB', 2 ** 20],
    ['KiB', 2 ** 10],
  ] as const) {
    if (bytes >= size) return `${(bytes / size).toFixed(1)} ${unit}`;
  }
  return `${bytes} bytes`;
}
