/**
 * Windows: memory of one GPU that kernels on the others can read and write.
 *
 * The usual kind is CUDA virtual memory: physical memory that any process on the machine can map, once it holds
 * the file descriptor that stands for it. The owner keeps that descriptor open; another rank's process takes a
 * duplicate of it (pidfd_getfd), imports and maps it. Ranks of one process just grant their GPU access to the
 * owner's mapping. Where the driver makes fabric handles, the window has one too, by which ranks on other hosts map it.
 * Where the system does not let processes take descriptors, windows are plain allocations shared by CUDA IPC handles
 * instead.
 *
 * A window ends with a random token that its handle repeats. A rank that opened the wrong memory (a descriptor's
 * number used again, an address allocated anew) finds another token there and refuses.
 */
import { randomBytes } from 'node:crypto';
import { HeddleError, requireOneOf, UnavailableError } from '../../base/errors.js';
import type { Address } from '../../base/native/index.js';
import { requireSameSize } from '../index.js';
import { type Context, check, failure } from './driver.js';
import { CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED } from './errors.js';
import { canAddress, countGpus, describeGpu, type Gpu } from './gpu.js';
import { decodeHandle, encodeHandle, tokenBytes, type WindowHandle } from './handle.js';
import * as posix from './posix.js';
import * as sharing from './sharing.js';
import * as virtual from './virtual.js';

interface Mapped {
  readonly address: Address;
  release(): void;
}

/** Addresses for the window of another rank. */
interface MappedPeer extends Mapped {
  /** Maps the window of another handle there instead. */
  map(handle: Uint8Array): void;
}

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
): Mapped & { readonly handle: Uint8Array } {
  context.use();
  const handleTypes = handleTypesOf(context, gpu);
  const what = virtual.describe(bytes, purpose, gpu);
  return virtual.undoable(context, what, (steps) => {
    const memory =
      handleTypes === 0 ? allocateForIpc(steps, bytes) : allocateShareable(steps, gpu, bytes, handleTypes);
    const { address, mappedBytes } = memory;
    const token = randomBytes(tokenBytes);
    fill(address, mappedBytes);
    const written = context.driver.cuMemcpyHtoD(address + mappedBytes - tokenBytes, token, tokenBytes);
    check(written, 'cuMemcpyHtoD', `marking the ${purpose}`);
    const { ordinal, uuid } = gpu;
    const fabric = sharing.probeFabric(context, gpu).result;
    const handle = encodeHandle({
      ...memory,
      ...thisProcess(),
      bytes,
      ordinal,
      uuid,
      token,
      fabric,
      purpose,
    });
    return { address, handle };
  });
}

/** Maps the window that a handle names, readable and writable by the context's GPU. */
export function openWindow(context: Context, gpu: Gpu, bytes: Uint8Array): MappedPeer {
  const { handle, whose, way } = wayFrom(context, gpu, bytes);
  return virtual.undoable(context, whose, (steps) => {
    if (way === 'descriptor' || way === 'fabric') {
      const place = reservePlace(steps, gpu, handle.mappedBytes);
      place.map(bytes);
      return place;
    }
    // Its address is not this process's to choose.
    const address = way === 'here' ? openHere(context, gpu, handle, whose) : openIpc(steps, gpu, handle);
    requireMark(context, address, handle, whose);
    const map = () => {
      throw addressesChange(whose);
    };
    return { address, map };
  });
}

/**
 * Addresses for the window of another rank that is as long as one of this GPU's, before there is any.
 * @throws UnavailableError where windows come to addresses of CUDA's choice.
 */
export function reserveWindow(context: Context, gpu: Gpu, bytes: number, purpose: string): MappedPeer {
  const what = virtual.describe(bytes, purpose, gpu);
  context.use();
  const handleTypes = handleTypesOf(context, gpu);
  if (handleTypes === 0) throw addressesChange(`the ${purpose} of another rank`);
  const mappedBytes = mappedSize(context, gpu, bytes, handleTypes, what);
  return virtual.undoable(context, what, (steps) => reservePlace(steps, gpu, mappedBytes));
}

/**
 * Addresses of this process at which windows of other processes are mapped, one at a time. Kernels and graphs that hold the address
 * reach the one that is there now. None of them may run while another takes its place.
 */
function reservePlace(steps: virtual.Steps, gpu: Gpu, bytes: number) {
  const { context } = steps;
  const address = steps.reserve(bytes);
  const range = { address, bytes };
  let mapped: virtual.Steps | undefined;
  const clear = () => mapped?.undo();
  steps.add(clear);
  const map = (bytesOfHandle: Uint8Array): void => {
    const { handle, whose, way } = wayFrom(context, gpu, bytesOfHandle);
    if (way === 'here' || way === 'ipc') throw addressesChange(whose);
    requireSameSize(whose, handle.mappedBytes, bytes);
    const memory = imports[way](context, handle, whose);
    // What is mapped stays without its handle.
    try {
      clear();
      mapped = new virtual.Steps(context, whose);
      mapped.map(range, memory);
      virtual.grant(context, range, [virtual.onGpu(gpu)], `granting GPU ${gpu.ordinal} ${whose}`);
      requireMark(context, address, handle, whose);
    } catch (error) {
      clear();
      throw error;
    } finally {
      check(context.driver.cuMemRelease(memory), 'cuMemRelease', whose);
    }
  };
  return { address, map };
}

/** Reads a handle, and finds the way by which this process comes to its window. */
function wayFrom(context: Context, gpu: Gpu, bytes: Uint8Array) {
  const handle = decodeHandle(bytes);
  const whose = `the ${handle.purpose} of process ${handle.pid} (GPU ${handle.ordinal})`;
  context.use();
  requireReachable(gpu, handle, whose);
  return { handle, whose, way: sharing.wayTo(handle, thisProcess(), whose) };
}

function requireMark(context: Context, address: Address, handle: WindowHandle, whose: string): void {
  const found = new Uint8Array(tokenBytes);
  const read = context.driver.cuMemcpyDtoH(found, address + handle.mappedBytes - tokenBytes, tokenBytes);
  check(read, 'cuMemcpyDtoH', `reading the mark of ${whose}`);
  if (Buffer.compare(found, handle.token) !== 0)
    throw stale(whose, 'its memory now belongs to something else');
}

type Shareable = Pick<WindowHandle, 'kind' | 'address' | 'mappedBytes' | 'fd' | 'opaque'>;

const thisProcess = (): sharing.ProcessId => ({
  pid: process.pid,
  started: posix.startTime(process.pid) ?? 0,
  bootId: posix.bootId(),
  pidNamespace: posix.pidNamespace(),
});

/** The values that HEDDLE_WINDOWS may have. */
export const windowKinds = ['auto', 'descriptor', 'fabric', 'ipc'] as const;

let descriptorsWork: boolean | undefined;

/**
 * The ways to share a window: a set of descriptor and fabric handle, or 0 for CUDA IPC. HEDDLE_WINDOWS insists on one,
 * such as ipc where descriptors are known to be refused (a hardened container).
 */
function handleTypesOf(context: Context, gpu: Gpu): number {
  const wanted = requireOneOf('HEDDLE_WINDOWS', process.env.HEDDLE_WINDOWS ?? 'auto', windowKinds);
  if (wanted === 'ipc') return 0;
  const { result, detail } = sharing.probeFabric(context, gpu);
  const fabric = result === 0 ? sharing.fabricHandle : 0;
  if (wanted === 'fabric') {
    if (fabric) return fabric;
    throw new UnavailableError(
      `HEDDLE_WINDOWS is fabric, but ${detail} (GPU ${gpu.ordinal})`,
      `Fabric handles need ${sharing.fabricRemedy}`,
    );
  }
  const descriptors =
    wanted === 'descriptor' || (gpu.virtualMemory && gpu.posixHandles && allowsTakingDescriptors());
  return (descriptors ? sharing.posixDescriptor : 0) | fabric;
}

/** Whether this system lets the ranks' processes take descriptors of each other. */
export function allowsTakingDescriptors(): boolean {
  descriptorsWork ??= posix.canTakeDescriptors();
  return descriptorsWork;
}

function allocateShareable(steps: virtual.Steps, gpu: Gpu, bytes: number, handleTypes: number): Shareable {
  const { context, what } = steps;
  const { out, cuMemExportToShareableHandle } = context.driver;
  const mappedBytes = mappedSize(context, gpu, bytes, handleTypes, what);
  writeProperties(context, gpu, handleTypes);
  const memory = steps.create(mappedBytes);
  const share = (type: number): void =>
    check(cuMemExportToShareableHandle(out.address, memory, type, 0), 'cuMemExportToShareableHandle', what);
  let fd = -1;
  if (handleTypes & sharing.posixDescriptor) {
    share(sharing.posixDescriptor);
    fd = out.i32[0]!;
    steps.add(() => posix.closeDescriptor(fd));
    posix.allowDescriptorsToBeTaken();
  }
  out.bytes.fill(0, 0, sharing.fabricHandleBytes);
  if (handleTypes & sharing.fabricHandle) share(sharing.fabricHandle);
  const opaque = out.bytes.slice(0, sharing.fabricHandleBytes);
  const address = steps.reserve(mappedBytes);
  const range = { address, bytes: mappedBytes };
  steps.map(range, memory);
  virtual.grant(context, range, [virtual.onGpu(gpu)], `granting GPU ${gpu.ordinal} ${what}`);
  return { kind: 'virtual', address, mappedBytes, fd, opaque };
}

function writeProperties(context: Context, gpu: Gpu, handleTypes: number): void {
  virtual.writeProperties(context, virtual.onGpu(gpu), { rdma: gpu.rdmaMemory, handleTypes });
}

/** The length of a window as it is mapped, which ends with its mark. */
function mappedSize(context: Context, gpu: Gpu, bytes: number, handleTypes: number, what: string): number {
  writeProperties(context, gpu, handleTypes);
  const piece = virtual.granularity(context, 'recommended', what);
  return Math.ceil((bytes + tokenBytes) / piece) * piece;
}

function allocateForIpc(steps: virtual.Steps, bytes: number): Shareable {
  const { context, what } = steps;
  const d = context.driver;
  const mappedBytes = Math.ceil((bytes + tokenBytes) / ipcGranularity) * ipcGranularity;
  const allocated = d.cuMemAlloc(d.out.address, mappedBytes);
  if (allocated !== 0) throw virtual.outOfMemory(context, allocated, 'cuMemAlloc', what);
  const address = d.out.number();
  steps.add(() => check(d.cuMemFree(address), 'cuMemFree', what));
  check(d.cuIpcGetMemHandle(d.out.address, address), 'cuIpcGetMemHandle', what);
  return { kind: 'ipc', address, mappedBytes, fd: -1, opaque: d.out.bytes.slice(0, 64) };
}

/** The mapping is the owner's; there is nothing here to undo. */
function openHere(context: Context, gpu: Gpu, handle: WindowHandle, whose: string): Address {
  const d = context.driver;
  // Asks the driver first: copying from an address that it does not know would fault the process.
  const deviceOrdinal = 9;
  if (d.cuPointerGetAttribute(d.out.address, deviceOrdinal, handle.address) !== 0) {
    throw stale(whose, 'it was freed');
  }
  if (handle.ordinal !== gpu.ordinal) {
    const { address, mappedBytes: bytes } = handle;
    const doing = `granting GPU ${gpu.ordinal} ${whose}`;
    if (handle.kind === 'virtual') virtual.grant(context, { address, bytes }, [virtual.onGpu(gpu)], doing);
    else enablePeerAccess(context, gpu, handle.ordinal);
  }
  return handle.address;
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

/** The memory behind a descriptor of another process, to be mapped here. */
function importDescriptor(context: Context, handle: WindowHandle, whose: string): bigint {
  const d = context.driver;
  const now = posix.startTime(handle.pid);
  if (now !== null && now !== handle.started) throw ended(whose);
  const taken = posix.takeDescriptor(handle.pid, handle.fd);
  if (!taken.ok) {
    if (taken.why === 'ended') throw ended(whose);
    if (taken.why === 'closed') throw stale(whose, 'it was freed');
    throw new UnavailableError(
      `This process may not take the file descriptor of ${whose} (${taken.detail})`,
      'Run the ranks as one user in one container with CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE), ' +
        'or with HEDDLE_WINDOWS=ipc',
    );
  }
  try {
    // The descriptor travels in the pointer argument itself.
    const imported = d.cuMemImportFromShareableHandle(d.out.address, taken.fd, sharing.posixDescriptor);
    if (imported !== 0) throw stale(whose, failure('cuMemImportFromShareableHandle', imported, '').message);
  } finally {
    posix.closeDescriptor(taken.fd);
  }
  return d.out.u64[0]!;
}

function importFabric(context: Context, handle: WindowHandle, whose: string): bigint {
  const { out, cuMemImportFromShareableHandle: importHandle } = context.driver;
  out.bytes.set(handle.opaque, 64);
  const imported = importHandle(out.address, out.address + 64, sharing.fabricHandle);
  if (imported !== 0) {
    throw new UnavailableError(
      `The fabric handle of ${whose} cannot be imported here: ${sharing.explain(imported)}`,
      `It needs ${sharing.fabricRemedy}; and the window must still exist`,
    );
  }
  return out.u64[0]!;
}

const imports = { descriptor: importDescriptor, fabric: importFabric } as const;

function openIpc(steps: virtual.Steps, gpu: Gpu, handle: WindowHandle): Address {
  const { context, what: whose } = steps;
  const d = context.driver;
  const opened = d.cuIpcOpenMemHandle(d.out.address, { bytes: handle.opaque }, lazyPeerAccess);
  if (opened !== 0) {
    if (posix.startTime(handle.pid) !== handle.started) throw ended(whose);
    throw failure('cuIpcOpenMemHandle', opened, `opening ${whose} on GPU ${gpu.ordinal}`);
  }
  const address = d.out.number();
  steps.add(() => check(d.cuIpcCloseMemHandle(address), 'cuIpcCloseMemHandle', whose));
  return address;
}

function requireReachable(gpu: Gpu, handle: WindowHandle, whose: string): void {
  // A GPU of another machine, or one that this process does not see (CUDA_VISIBLE_DEVICES), cannot be asked about;
  // mapping will tell.
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

function stale(whose: string, why: string): HeddleError {
  return new HeddleError(
    'HEDDLE_STALE_WINDOW',
    `The handle is stale: ${whose} is gone (${why}); exchange handles again after every rank has made its window`,
  );
}

function ended(whose: string): HeddleError {
  return stale(whose, 'that process has ended');
}

/** Kernels and graphs hold the address of the window before. */
function addressesChange(whose: string): UnavailableError {
  return new UnavailableError(
    `${whose} cannot be mapped where another window is: CUDA IPC, or the process that owns it, chooses its address`,
    'Let windows be shared by file descriptors (`heddle doctor` says what forbids it), ' +
      'or give every rank a node of its own (HEDDLE_NODES), between which rows are messages',
  );
}
