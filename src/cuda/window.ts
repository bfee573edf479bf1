/**
 * Windows: memory of one GPU that kernels on the others can read and write.
 *
 * The usual kind is CUDA virtual memory: physical memory that any process on the machine can map, once it holds
 * the file descriptor that stands for it. The owner keeps that descriptor open; another rank's process takes a
 * duplicate of it (pidfd_getfd), imports and maps it. Ranks of one process just grant their GPU access to the
 * owner's mapping. Where the system does not let processes take descriptors, windows are plain allocations shared
 * by CUDA IPC handles instead.
 *
 * A window ends with a random token that its handle repeats. A rank that opened the wrong memory (a descriptor's
 * number used again, an address allocated anew) finds another token there and refuses.
 */
import { randomBytes } from 'node:crypto';
import { ArgumentError, HeddleError, UnavailableError } from '../errors/index.js';
import type { Address } from '../native/index.js';
import { type Context, check, failure } from './driver.js';
import {
  CUDA_ERROR_OUT_OF_MEMORY,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
  type CudaError,
} from './errors.js';
import { canAddress, countGpus, describeGpu, type Gpu } from './gpu.js';
import { decodeHandle, encodeHandle, tokenBytes, type WindowHandle } from './handle.js';
import {
  allowDescriptorsToBeTaken,
  bootId,
  canTakeDescriptors,
  closeDescriptor,
  startTime,
  takeDescriptor,
} from './posix.js';

/** A window of this rank: where it lies, what names it, how to undo it. */
export interface OwnWindow {
  readonly address: Address;
  readonly handle: Uint8Array;
  release(): void;
}

/** Another rank's window as mapped here. */
export interface OpenedWindow {
  readonly address: Address;
  release(): void;
}

// CUmemAllocationProp and CUmemAccessDesc, as 32-bit words.
const pinned = 1;
const posixDescriptor = 1;
const locationDevice = 1;
const readWrite = 3;
const lazyPeerAccess = 1;

/** CUDA IPC exports whole 2 MiB blocks; a window that fills its blocks shares them with nobody. */
const ipcGranularity = 2 ** 21;

/** Allocates a window on the context's GPU and zeroes it with `fill`, which must wait until it is done. */
export function allocateWindow(
  context: Context,
  gpu: Gpu,
  bytes: number,
  purpose: string,
  fill: (address: Address, bytes: number) => void,
): OwnWindow {
  context.use();
  const make = usesDescriptors(gpu) ? allocateShareable : allocateForIpc;
  const memory = make(context, gpu, bytes, purpose);
  const token = randomBytes(tokenBytes);
  try {
    fill(memory.address, memory.mappedBytes);
    const written = context.driver.cuMemcpyHtoD(
      memory.address + memory.mappedBytes - tokenBytes,
      token,
      tokenBytes,
    );
    check(written, 'cuMemcpyHtoD', `marking the ${purpose}`);
  } catch (error) {
    memory.release();
    throw error;
  }
  const handle = encodeHandle({
    kind: memory.kind,
    pid: process.pid,
    started: startTime(process.pid) ?? 0,
    bootId: bootId(),
    fd: memory.fd,
    address: memory.address,
    bytes,
    mappedBytes: memory.mappedBytes,
    ordinal: gpu.ordinal,
    uuid: gpu.uuid,
    token,
    ipc: memory.ipc,
    purpose,
  });
  return { address: memory.address, handle, release: memory.release };
}

/** Maps the window that a handle names, readable and writable by the context's GPU. */
export function openWindow(context: Context, gpu: Gpu, bytes: Uint8Array): OpenedWindow {
  const handle = decodeHandle(bytes);
  const whose = `the ${handle.purpose} of process ${handle.pid} (GPU ${handle.ordinal})`;
  context.use();
  requireReachable(gpu, handle, whose);
  const sameProcess = handle.pid === process.pid && handle.started === (startTime(process.pid) ?? 0);
  const open = sameProcess ? openHere : handle.kind === 'ipc' ? openIpc : openDescriptor;
  const opened = open(context, gpu, handle, whose);
  try {
    const found = new Uint8Array(tokenBytes);
    const read = context.driver.cuMemcpyDtoH(
      found,
      opened.address + handle.mappedBytes - tokenBytes,
      tokenBytes,
    );
    check(read, 'cuMemcpyDtoH', `reading the mark of ${whose}`);
    if (Buffer.compare(found, handle.token) !== 0)
      throw stale(whose, 'its memory now belongs to something else');
  } catch (error) {
    opened.release();
    throw error;
  }
  return opened;
}

interface Shareable {
  readonly kind: WindowHandle['kind'];
  readonly address: Address;
  readonly mappedBytes: number;
  readonly fd: number;
  readonly ipc: Uint8Array;
  release(): void;
}

let descriptorsWork: boolean | undefined;

/** HEDDLE_WINDOWS=ipc chooses CUDA IPC where descriptors are known to be refused (a hardened container). */
function usesDescriptors(gpu: Gpu): boolean {
  const wanted = process.env.HEDDLE_WINDOWS ?? 'auto';
  if (!['auto', 'descriptor', 'ipc'].includes(wanted)) {
    throw new ArgumentError('HEDDLE_WINDOWS', wanted, 'auto, descriptor or ipc');
  }
  if (wanted !== 'auto') return wanted === 'descriptor';
  return gpu.virtualMemory && gpu.posixHandles && allowsTakingDescriptors();
}

/** Whether this system lets the ranks' processes take descriptors of each other. */
export function allowsTakingDescriptors(): boolean {
  descriptorsWork ??= canTakeDescriptors();
  return descriptorsWork;
}

function allocateShareable(context: Context, gpu: Gpu, bytes: number, purpose: string): Shareable {
  const d = context.driver;
  const { out } = d;
  const what = describe(bytes, purpose, gpu);
  // out.i32[0..7]: the properties; out.u64[4]: the result.
  const result = out.address + 32;
  const properties = () => {
    out.bytes.fill(0);
    out.i32.set([pinned, posixDescriptor, locationDevice, gpu.ordinal]);
    // Lets a NIC reach the memory too, for windows that a fabric writes into.
    out.bytes[25] = gpu.rdmaMemory ? 1 : 0;
  };
  properties();
  check(d.cuMemGetAllocationGranularity(result, out.address, 1), 'cuMemGetAllocationGranularity', what);
  const granularity = out.number(4);
  const mappedBytes = Math.ceil((bytes + tokenBytes) / granularity) * granularity;

  // What to undo, last first.
  const undo: (() => void)[] = [];
  const release = () => {
    context.use();
    for (let step = undo.pop(); step !== undefined; step = undo.pop()) step();
  };
  try {
    properties();
    const created = d.cuMemCreate(result, mappedBytes, out.address, 0);
    if (created !== 0) throw outOfMemory(context, created, 'cuMemCreate', what);
    const memory = out.u64[4]!;
    undo.push(() => check(d.cuMemRelease(memory), 'cuMemRelease', what));
    const exported = d.cuMemExportToShareableHandle(out.address, memory, posixDescriptor, 0);
    check(exported, 'cuMemExportToShareableHandle', what);
    const fd = out.i32[0]!;
    undo.push(() => closeDescriptor(fd));
    allowDescriptorsToBeTaken();
    const address = map(context, gpu, memory, mappedBytes, what, undo);
    return { kind: 'descriptor', address, mappedBytes, fd, ipc: new Uint8Array(64), release };
  } catch (error) {
    release();
    throw error;
  }
}

/** Maps physical memory at an address of its own, accessible to `gpu`. Pushes what undoes it. */
function map(
  context: Context,
  gpu: Gpu,
  memory: bigint,
  bytes: number,
  what: string,
  undo: (() => void)[],
): Address {
  const d = context.driver;
  check(d.cuMemAddressReserve(d.out.address, bytes, 0, 0, 0), 'cuMemAddressReserve', what);
  const address = d.out.number();
  undo.push(() => check(d.cuMemAddressFree(address, bytes), 'cuMemAddressFree', what));
  check(d.cuMemMap(address, bytes, 0, memory, 0), 'cuMemMap', what);
  undo.push(() => check(d.cuMemUnmap(address, bytes), 'cuMemUnmap', what));
  grant(context, gpu, address, bytes, what);
  return address;
}

/** Lets kernels on `gpu` read and write a mapping. Other GPUs' access stays as it is. */
function grant(context: Context, gpu: Gpu, address: Address, bytes: number, what: string): void {
  const { out, cuMemSetAccess } = context.driver;
  out.i32.set([locationDevice, gpu.ordinal, readWrite]);
  check(
    cuMemSetAccess(address, bytes, out.address, 1),
    'cuMemSetAccess',
    `granting GPU ${gpu.ordinal} ${what}`,
  );
}

function allocateForIpc(context: Context, gpu: Gpu, bytes: number, purpose: string): Shareable {
  const d = context.driver;
  const what = describe(bytes, purpose, gpu);
  const mappedBytes = Math.ceil((bytes + tokenBytes) / ipcGranularity) * ipcGranularity;
  const allocated = d.cuMemAlloc(d.out.address, mappedBytes);
  if (allocated !== 0) throw outOfMemory(context, allocated, 'cuMemAlloc', what);
  const address = d.out.number();
  let live = true;
  const release = () => {
    if (!live) return;
    live = false;
    context.use();
    check(d.cuMemFree(address), 'cuMemFree', what);
  };
  try {
    check(d.cuIpcGetMemHandle(d.out.address, address), 'cuIpcGetMemHandle', what);
    return { kind: 'ipc', address, mappedBytes, fd: -1, ipc: d.out.bytes.slice(0, 64), release };
  } catch (error) {
    release();
    throw error;
  }
}

function openHere(context: Context, gpu: Gpu, handle: WindowHandle, whose: string): OpenedWindow {
  const d = context.driver;
  // Asks the driver first: copying from an address that it does not know would fault the process.
  const deviceOrdinal = 9;
  if (d.cuPointerGetAttribute(d.out.address, deviceOrdinal, handle.address) !== 0) {
    throw stale(whose, 'it was freed');
  }
  if (handle.ordinal !== gpu.ordinal) {
    if (handle.kind === 'descriptor') grant(context, gpu, handle.address, handle.mappedBytes, whose);
    else enablePeerAccess(context, gpu, handle.ordinal);
  }
  // The mapping is the owner's; there is nothing here to undo.
  return { address: handle.address, release: () => {} };
}

/** Lets this context address all plain allocations of another GPU in this process. */
function enablePeerAccess(context: Context, gpu: Gpu, ordinal: number): void {
  const d = context.driver;
  check(d.cuDevicePrimaryCtxRetain(d.out.address, ordinal), 'cuDevicePrimaryCtxRetain');
  const peer = d.out.number();
  try {
    const enabled = d.cuCtxEnablePeerAccess(peer, 0);
    if (enabled === CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return;
    check(enabled, 'cuCtxEnablePeerAccess', `GPU ${gpu.ordinal} to GPU ${ordinal}`);
  } finally {
    d.cuDevicePrimaryCtxRelease(ordinal);
  }
}

function openDescriptor(context: Context, gpu: Gpu, handle: WindowHandle, whose: string): OpenedWindow {
  const d = context.driver;
  const now = startTime(handle.pid);
  if (now !== null && now !== handle.started) throw ended(whose);
  const taken = takeDescriptor(handle.pid, handle.fd);
  if (!taken.ok) {
    if (taken.why === 'ended') throw ended(whose);
    if (taken.why === 'closed') throw stale(whose, 'it was freed');
    throw new UnavailableError(
      `This process may not take the file descriptor of ${whose} (${taken.detail})`,
      'Run the ranks as one user in one container with CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE), ' +
        'or with HEDDLE_WINDOWS=ipc',
    );
  }
  const undo: (() => void)[] = [];
  const release = () => {
    context.use();
    for (let step = undo.pop(); step !== undefined; step = undo.pop()) step();
  };
  try {
    let memory: bigint;
    try {
      // The descriptor travels in the pointer argument itself.
      const imported = d.cuMemImportFromShareableHandle(d.out.address, taken.fd, posixDescriptor);
      if (imported !== 0) throw stale(whose, failure('cuMemImportFromShareableHandle', imported, '').message);
      memory = d.out.u64[0]!;
    } finally {
      closeDescriptor(taken.fd);
    }
    undo.push(() => check(d.cuMemRelease(memory), 'cuMemRelease', whose));
    const address = map(context, gpu, memory, handle.mappedBytes, whose, undo);
    return { address, release };
  } catch (error) {
    release();
    throw error;
  }
}

function openIpc(context: Context, gpu: Gpu, handle: WindowHandle, whose: string): OpenedWindow {
  const d = context.driver;
  const opened = d.cuIpcOpenMemHandle(d.out.address, { bytes: handle.ipc }, lazyPeerAccess);
  if (opened !== 0) {
    if (startTime(handle.pid) !== handle.started) throw ended(whose);
    throw failure('cuIpcOpenMemHandle', opened, `opening ${whose} on GPU ${gpu.ordinal}`);
  }
  const address = d.out.number();
  let live = true;
  return {
    address,
    release: () => {
      if (!live) return;
      live = false;
      context.use();
      check(d.cuIpcCloseMemHandle(address), 'cuIpcCloseMemHandle', whose);
    },
  };
}

function requireReachable(gpu: Gpu, handle: WindowHandle, whose: string): void {
  if (handle.bootId !== bootId()) {
    throw new UnavailableError(
      `${whose} is on another machine`,
      'Windows join the GPUs of one machine; between machines use a hybrid or portable kernel',
    );
  }
  // A GPU that this process does not see (CUDA_VISIBLE_DEVICES) cannot be asked about; mapping will tell.
  for (let other = 0; other < countGpus(); other++) {
    if (describeGpu(other).uuid !== handle.uuid) continue;
    if (canAddress(gpu.ordinal, other)) return;
    throw new UnavailableError(
      `GPU ${gpu.ordinal} (${gpu.name}) cannot address the memory of GPU ${other}, where ${whose} lies`,
      'Choose GPUs with peer access between them: `heddle doctor` prints the table. A virtual machine or an ' +
        'IOMMU can withhold it',
    );
  }
}

/** The error of a failed allocation: what was asked for, what for, and what the GPU has. */
export function outOfMemory(context: Context, result: number, call: string, what: string): CudaError {
  if (result !== CUDA_ERROR_OUT_OF_MEMORY) return failure(call, result, what);
  const { out, cuMemGetInfo } = context.driver;
  const known = cuMemGetInfo(out.address, out.address + 8) === 0;
  const left = known
    ? `, of which ${formatBytes(out.number(0))} of ${formatBytes(out.number(1))} are free`
    : '';
  return failure(call, result, `${what}${left}`);
}

/** 'allocating 1.5 GiB for the receive window on GPU 2' */
export function describe(bytes: number, purpose: string, gpu: Gpu): string {
  return `allocating ${formatBytes(bytes)} (${bytes} bytes) for the ${purpose} on GPU ${gpu.ordinal}`;
}

export function formatBytes(bytes: number): string {
  for (const [unit, size] of [
    ['GiB', 2 ** 30],
    ['MiB', 2 ** 20],
    ['KiB', 2 ** 10],
  ] as const) {
    if (bytes >= size) return `${(bytes / size).toFixed(1)} ${unit}`;
  }
  return `${bytes} bytes`;
}

function stale(whose: string, why: string): HeddleError {
  return new HeddleError(
    'HEDDLE_STALE_WINDOW',
    `The handle is stale: ${whose} is gone (${why}); exchange handles again after every rank has made its window`,
  );
}

function ended(whose: string): HeddleError {
  return stale(whose, 'that process has ended');
}
