import {
  ArgumentError,
  DisposedError,
  HeddleError,
  requireInteger,
  requireText,
  UnavailableError,
} from '../../base/errors.js';
import { type Address, view } from '../../base/native/index.js';
import { dynamicSharedBytes, type IrModule, requireModule } from '../../lang/index.js';
import {
  type Device,
  type Fill,
  fillAll,
  type MappedMemory,
  type Memory,
  NativeView,
  type PeerMemory,
  type ReachedGpu,
  requireFills,
  requireWire,
  type WindowMemory,
  type WireMemory,
  type WireShape,
} from '../index.js';
import { compileKernel } from './compiler.js';
import { Context, check } from './driver.js';
import { CudaError } from './errors.js';
import { architecture, countGpus, describeGpu, type Gpu, requireCapability, requireHardware } from './gpu.js';
import { link } from './link.js';
import { NvshmemHeap, nvshmemState } from './nvshmem/heap.js';
import { closeDescriptor } from './posix.js';
import { printKernel } from './print.js';
import { CudaProgram } from './program.js';
import { type FabricProbe, probeFabric } from './sharing.js';
import { allocatePinned, freePinned, Staging } from './staging.js';
import { CudaEvent, CudaStream, type Home, type Owned, until } from './stream.js';
import { describe, outOfMemory } from './virtual.js';
import { allocateWindow, openWindow, reserveWindow } from './window.js';
import { allocateGpuWire } from './wire.js';

/** Device memory as a file that other drivers of this machine can import. */
export interface Dmabuf {
  readonly fd: number;
  /** The place in the file at which the memory begins. */
  readonly offset: number;
  close(): void;
}

const pageBytes = 4096;

/** Longest that `settle` waits for enqueued work; the waits of kernels end much sooner. */
const disposeLimit = 60_000;

/** One NVIDIA GPU, as one rank uses it. */
export class CudaDevice implements Device {
  readonly kind = 'cuda';
  readonly gpu: Gpu;
  readonly description: string;
  readonly memoryBytes: number;
  readonly model: string;
  readonly cacheBytes: number;
  readonly multiprocessors: number;
  readonly capability: readonly [major: number, minor: number];
  readonly #home: Home;
  /** Streams, events, graphs, memory and windows, in the order in which they were made. */
  readonly #children = new Set<Owned & { isIdle(): boolean }>();
  /** The programs that are loaded, or are being loaded: one for all call sites of a kernel. */
  readonly #programs = new WeakMap<IrModule, Promise<CudaProgram>>();
  #state: 'live' | 'closing' | 'disposed' = 'live';
  #internal: CudaStream | null = null;
  #nvshmem: NvshmemHeap | null = null;

  /**
   * Opens GPU number `ordinal` of those that this process may use.
   * @throws UnavailableError where there is no driver or no such GPU.
   */
  static open(ordinal: number): CudaDevice {
    requireInteger('ordinal', ordinal, 0, 1023);
    const count = countGpus();
    if (ordinal >= count) {
      throw new UnavailableError(
        `GPU ${ordinal} was asked for, but this process sees ${count === 1 ? 'one GPU' : `${count} GPUs`}`,
        'Use fewer ranks, or make more GPUs visible (CUDA_VISIBLE_DEVICES)',
      );
    }
    const gpu = describeGpu(ordinal);
    requireCapability(gpu.capability, `GPU ${ordinal} (${gpu.name})`);
    return new CudaDevice(gpu);
  }

  private constructor(gpu: Gpu) {
    this.gpu = gpu;
    this.description = `${gpu.name} #${gpu.ordinal}`;
    this.memoryBytes = gpu.memoryBytes;
    this.model = gpu.name;
    this.cacheBytes = gpu.l2Bytes;
    this.multiprocessors = gpu.multiprocessors;
    this.capability = gpu.capability;
    const context = new Context(gpu.ordinal);
    this.#home = {
      context,
      staging: new Staging(context),
      requireLive: () => {
        if (this.#state === 'disposed') throw new DisposedError(this.description);
      },
      adopt: (free, isIdle) => this.#adopt(free, isIdle),
    };
  }

  allocate(bytes: number, purpose: string): Memory {
    const { context } = this.#enter();
    requireInteger('bytes', bytes, 1, Number.MAX_SAFE_INTEGER);
    const { cuMemAlloc, cuMemFree, out } = context.driver;
    const allocated = cuMemAlloc(out.address, bytes);
    if (allocated !== 0)
      throw outOfMemory(context, allocated, 'cuMemAlloc', describe(bytes, purpose, this.gpu));
    const address = out.number();
    const { dispose } = this.#adopt(() => check(cuMemFree(address), 'cuMemFree', `freeing the ${purpose}`));
    return { address, bytes, free: dispose };
  }

  allocateWindow(bytes: number, purpose: string, fills: readonly Fill[] = []): WindowMemory {
    const { context } = this.#enter();
    requireInteger('bytes', bytes, 1, 2 ** 40);
    const window = allocateWindow(context, this.gpu, bytes, purpose, (address, mapped) =>
      this.#clear(address, mapped, purpose, fills),
    );
    const { dispose } = this.#adopt(window.release);
    return { address: window.address, bytes, handle: window.handle, poison: () => {}, free: dispose };
  }

  #clear(address: number, bytes: number, purpose: string, fills: readonly Fill[]): void {
    const { cuMemsetD8Async, cuStreamSynchronize } = this.#enter().context.driver;
    this.#internal ??= this.createStream();
    const { handle: stream } = this.#internal;
    check(cuMemsetD8Async(address, 0, bytes, stream), 'cuMemsetD8Async', `clearing the ${purpose}`);
    for (const { offset, bytes, value } of fills) {
      const filled = cuMemsetD8Async(address + offset, value, bytes, stream);
      check(filled, 'cuMemsetD8Async', `filling the ${purpose}`);
    }
    check(cuStreamSynchronize(stream), 'cuStreamSynchronize', `clearing the ${purpose}`);
  }

  async openWindow(handle: Uint8Array): Promise<PeerMemory> {
    const { context } = this.#enter();
    return this.#peer(openWindow(context, this.gpu, handle));
  }

  reserveWindow(bytes: number, purpose: string): PeerMemory {
    const { context } = this.#enter();
    requireInteger('bytes', bytes, 1, 2 ** 40);
    requireText('purpose', purpose);
    return this.#peer(reserveWindow(context, this.gpu, bytes, purpose));
  }

  #peer({ address, map, release }: ReturnType<typeof openWindow>): PeerMemory {
    const { dispose } = this.#adopt(release);
    return {
      address,
      map: async (handle) => {
        this.#enter();
        map(handle);
      },
      close: dispose,
    };
  }

  /** Whether windows of this GPU can be mapped from other hosts, found by trying. */
  probeFabric(): FabricProbe {
    return probeFabric(this.#enter().context, this.gpu);
  }

  /** Pinned host memory, at one address for the host and for all GPUs of this process. */
  allocateMapped(bytes: number, purpose: string): MappedMemory {
    const { context } = this.#enter();
    requireInteger('bytes', bytes, 1, 2 ** 30);
    const pinned = allocatePinned(context, bytes, purpose);
    pinned.bytes.fill(0);
    const { out, cuMemHostGetDevicePointer } = context.driver;
    check(cuMemHostGetDevicePointer(out.address, pinned.address, 0), 'cuMemHostGetDevicePointer', purpose);
    const address = out.number();
    const { dispose } = this.#adopt(() => freePinned(context, pinned));
    return { address, bytes, host: new NativeView(pinned.bytes), raw: pinned.bytes, free: dispose };
  }

  /** Host memory as `allocateMapped` gives it, or one range of addresses whose front is that. */
  allocateWire(shape: WireShape, purpose: string, fills: readonly Fill[] = []): WireMemory {
    requireWire(shape, 2 ** 30);
    const { bytes, front, side } = shape;
    requireFills(fills, bytes);
    return side === 'host'
      ? this.#wireOfHost(this.allocateMapped(bytes, purpose), front, fills)
      : this.#wireOfGpu(shape, purpose, fills);
  }

  #wireOfHost(memory: MappedMemory, front: number, fills: readonly Fill[]): WireMemory {
    const { raw } = memory;
    fillAll(raw, fills);
    return { ...memory, front, side: 'host', nics: { kind: 'host', raw: raw.subarray(front) } };
  }

  #wireOfGpu(shape: WireShape, purpose: string, fills: readonly Fill[]): WireMemory {
    const { context } = this.#enter();
    const { bytes, front } = shape;
    const wire = allocateGpuWire(context, this.gpu, shape, purpose);
    const { address } = wire;
    const { dispose: free } = this.#adopt(wire.release);
    const raw = new Uint8Array(view(address, front)).fill(0);
    const reached = { address: address + front, bytes: bytes - front };
    fillAll(
      raw,
      fills.filter(({ offset }) => offset < front),
    );
    const behind = fills.filter(({ offset }) => offset >= front);
    const moved = behind.map((fill) => ({ ...fill, offset: fill.offset - front }));
    this.#clear(reached.address, reached.bytes, purpose, moved);
    const dmabuf = this.exportDmabuf(reached.address, reached.bytes);
    const nics: ReachedGpu = {
      ...{ kind: 'gpu', ...reached, ordinal: this.gpu.ordinal, flush: !this.gpu.ordersNics },
      ...(dmabuf && { dmabuf: { fd: dmabuf.fd, offset: dmabuf.offset } }),
    };
    return {
      ...{ ...shape, address, host: new NativeView(raw), raw, nics },
      free: () => {
        dmabuf?.close();
        free();
      },
    };
  }

  /**
   * A dmabuf of device memory, by which a NIC reaches it (`TransferEngine.registerGpu`); null where the driver makes
   * none. It is a file descriptor of this process until it is closed.
   */
  exportDmabuf(address: number, bytes: number): Dmabuf | null {
    const { context } = this.#enter();
    requireInteger('address', address, 1, 2 ** 57);
    requireInteger('bytes', bytes, 1, Number.MAX_SAFE_INTEGER);
    const { out, cuMemGetHandleForAddressRange } = context.driver;
    const dmabufDescriptor = 1;
    // The driver exports whole pages only, as large as pages of the host.
    const offset = address % pageBytes;
    const length = Math.ceil((offset + bytes) / pageBytes) * pageBytes;
    const made = cuMemGetHandleForAddressRange(out.address, address - offset, length, dmabufDescriptor, 0);
    if (made !== 0) return null;
    const fd = out.i32[0]!;
    const { dispose } = this.#adopt(() => closeDescriptor(fd));
    return { fd, offset, close: dispose };
  }

  /**
   * Device memory that other code of this process allocated. Freeing it here does nothing.
   * @throws ArgumentError where the range is not memory that this GPU can address.
   */
  wrapMemory(address: number, bytes: number): Memory {
    const { context } = this.#enter();
    requireInteger('address', address, 1, 2 ** 57);
    requireInteger('bytes', bytes, 1, Number.MAX_SAFE_INTEGER);
    const { out, cuPointerGetAttribute } = context.driver;
    const rangeStart = 11;
    const rangeSize = 12;
    const known =
      cuPointerGetAttribute(out.address, rangeStart, address) === 0 &&
      cuPointerGetAttribute(out.address + 8, rangeSize, address) === 0;
    if (!known || address + bytes > out.number(0) + out.number(1)) {
      throw new ArgumentError(
        'address',
        `0x${address.toString(16)}`,
        `the start of ${bytes} bytes of CUDA memory`,
      );
    }
    return { address, bytes, free: () => {} };
  }

  async load(module: IrModule): Promise<CudaProgram> {
    requireModule('module', module);
    this.#enter();
    const loaded = this.#programs.get(module);
    if (loaded !== undefined) return loaded;
    const loading = this.#load(module);
    this.#programs.set(module, loading);
    loading.catch(() => this.#programs.delete(module));
    return loading;
  }

  async #load(module: IrModule): Promise<CudaProgram> {
    requireHardware(module, this.gpu.capability, this.gpu.name);
    const parts = printKernel(module);
    const [{ entry: kernel }] = parts;
    const sharedBytes = dynamicSharedBytes(module.shared);
    const { sharedBytesPerBlock, name } = this.gpu;
    if (sharedBytes > sharedBytesPerBlock) {
      throw new UnavailableError(
        `${kernel} needs ${sharedBytes} bytes of shared memory, but a block of ${name} has ${sharedBytesPerBlock}`,
        'Use smaller tiles or fewer stages on this GPU',
      );
    }
    const cubins = await Promise.all(
      parts.map((part) => compileKernel(part, architecture(this.gpu.capability))),
    );
    const { context } = this.#enter();
    const image = parts.length === 1 ? cubins[0]! : link(context, kernel, cubins);
    const d = context.driver;
    const loading = `loading the kernel ${kernel}`;
    check(d.cuModuleLoadData(d.out.address, image), 'cuModuleLoadData', loading);
    const loaded = d.out.number();
    const heap = parts.length === 1 ? null : this.#heapOf(loaded, kernel);
    this.#adopt(() => {
      if (heap?.stranded) return;
      heap?.leave(loaded);
      check(d.cuModuleUnload(loaded), 'cuModuleUnload', kernel);
    });
    heap?.enter(loaded, kernel);
    check(d.cuModuleGetFunction(d.out.address, loaded, kernel), 'cuModuleGetFunction', loading);
    const entry = d.out.number();
    // Now, while nothing of ours runs: a kernel loaded at its first launch would wait for the running ones.
    if (d.cuFuncLoad !== null) check(d.cuFuncLoad(entry), 'cuFuncLoad', loading);
    return new CudaProgram(this.#home, module, entry, this.gpu.capability[0] >= 9);
  }

  /** The source of a module's NVSHMEM state; null for others. */
  #heapOf(module: Address, kernel: string): NvshmemHeap | null {
    const { out, cuModuleGetGlobal } = this.#enter().context.driver;
    if (cuModuleGetGlobal(out.address, out.address + 8, module, nvshmemState) !== 0) return null;
    if (this.#nvshmem !== null) return this.#nvshmem;
    throw new HeddleError(
      'HEDDLE_NVSHMEM',
      `${kernel} calls NVSHMEM, which ${this.description} is not part of; make its symmetric window first`,
    );
  }

  /** Blocks the thread until every rank has called it with the same id: let them meet just before. */
  joinNvshmem(id: Uint8Array, rank: number, ranks: number, lost: AbortSignal): void {
    this.#enter();
    const heap = NvshmemHeap.join(id, rank, ranks, lost);
    this.#nvshmem = heap;
    this.#adopt(() => {
      if (!heap.stranded) heap.end();
    });
  }

  /** The heap that `joinNvshmem` has brought; null before. */
  get nvshmem(): NvshmemHeap | null {
    return this.#nvshmem;
  }

  /** Memory of NVSHMEM's heap, cleared: every rank calls it with the same size, and frees it in the same order. */
  allocateSymmetric(bytes: number, purpose: string, fills: readonly Fill[] = []): WindowMemory {
    this.#enter();
    const heap = this.#nvshmem;
    if (heap === null) throw new HeddleError('HEDDLE_NVSHMEM', `${this.description} is not part of NVSHMEM`);
    const address = heap.allocate(bytes, purpose);
    const { dispose } = this.#adopt(() => {
      if (!heap.stranded) heap.free(address);
    });
    this.#clear(address, bytes, purpose, fills);
    // Nobody maps it.
    return { address, bytes, handle: new Uint8Array(0), poison: () => {}, free: dispose };
  }

  createStream(): CudaStream {
    this.#enter();
    return new CudaStream(this.#home);
  }

  /** A stream of the caller, by its raw CUstream handle (0: the legacy default stream, 2: the thread's). */
  wrapStream(handle: number): CudaStream {
    this.#enter();
    return new CudaStream(this.#home, handle);
  }

  createEvent(): CudaEvent {
    this.#enter();
    return new CudaEvent(this.#home);
  }

  /** Makes this GPU's context current on this thread, for another CUDA library that is called next. */
  makeCurrent(): void {
    this.#enter();
  }

  /**
   * Waits for this device's own streams.
   * @throws HeddleError where work does not end.
   */
  async settle(): Promise<void> {
    const deadline = performance.now() + disposeLimit;
    await until(() => {
      if ([...this.#children].every(({ isIdle }) => isIdle())) return true;
      if (performance.now() < deadline) return false;
      throw new HeddleError(
        'HEDDLE_BUSY',
        `${this.description} still runs work after ${disposeLimit / 1000} s; end the process to free it`,
      );
    });
  }

  /**
   * Waits for this device's own streams, then frees everything. The caller's streams must be done with the memory.
   * @throws HeddleError where work does not end; then nothing is freed.
   */
  async dispose(): Promise<void> {
    if (this.#state !== 'live') return;
    this.#state = 'closing';
    try {
      await this.settle();
    } catch (error) {
      this.#state = 'live';
      throw error;
    }
    this.#state = 'disposed';
    // Last made, first freed: graphs before their streams, streams before the memory they use.
    const failures: unknown[] = [];
    for (const child of [...this.#children].reverse()) attempt(() => child.dispose(), failures);
    attempt(() => this.#home.staging.dispose(), failures);
    if (!this.#nvshmem?.stranded) attempt(() => this.#home.context.release(), failures);
    // After a failed kernel every one of these fails with the kernel's error, which `synchronize` reported; the
    // driver has let go of the memory then.
    const unexpected = failures.find((error) => !(error instanceof CudaError && error.contextLost));
    if (unexpected !== undefined) throw unexpected;
  }

  #enter(): Home {
    if (this.#state !== 'live') throw new DisposedError(this.description);
    this.#home.context.use();
    return this.#home;
  }

  #adopt(free: () => void, isIdle: () => boolean = () => true): Owned {
    const child = {
      isIdle,
      freed: false,
      dispose: () => {
        if (child.freed) return;
        child.freed = true;
        this.#children.delete(child);
        this.#home.context.use();
        free();
      },
    };
    this.#children.add(child);
    return child;
  }
}

function attempt(step: () => void, failures: unknown[]): void {
  try {
    step();
  } catch (error) {
    failures.push(error);
  }
}
