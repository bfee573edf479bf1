/**
 * A device: the one interface that `sim/` and `cuda/` implement and everything above uses. One Device is
 * one rank's GPU. Addresses are plain numbers (device addresses stay below 2^48).
 *
 * Everything a device does is ordered by a stream; nothing here waits for the host except what returns a promise.
 */
import type { IrModule } from '../lang/index.js';

/** One rank's GPU, real or simulated. */
export interface Device {
  /** The kind of device. */
  readonly kind: 'sim' | 'cuda';
  /** For people: 'NVIDIA H200 #2', 'simulated GPU #2 (checked)'. */
  readonly description: string;
  /** Bytes of its memory: no allocation can be larger. */
  readonly memoryBytes: number;
  /** The name of GPUs of its kind, for what was measured on them: 'NVIDIA H200'. */
  readonly model: string;
  /** Bytes of its largest cache; 0 where there is none. */
  readonly cacheBytes: number;
  /** Multiprocessors that run blocks; of a simulated GPU, the number of blocks that run at once. */
  readonly multiprocessors: number;
  /** Its compute capability, as CUDA counts: [9, 0] is Hopper, which a simulated GPU is too. */
  readonly capability: readonly [major: number, minor: number];

  /** Device memory of this rank, uninitialised. `purpose` appears in errors and findings: 'receive window'. */
  allocate(bytes: number, purpose: string): Memory;
  /** Memory that other ranks of the node can address: zeros, except where `fills` say otherwise. */
  allocateWindow(bytes: number, purpose: string, fills?: readonly Fill[]): WindowMemory;
  /** Host memory that this device's kernels share with the host: zeros. */
  allocateMapped(bytes: number, purpose: string): MappedMemory;
  /**
   * Memory that kernels, a proxy and NICs share: zeros, except where `fills` say otherwise.
   * @throws UnavailableError where NICs cannot reach memory of this GPU, which was asked for.
   */
  allocateWire(shape: WireShape, purpose: string, fills?: readonly Fill[]): WireMemory;
  /** Maps another rank's window here, from the bytes of its `handle`. */
  openWindow(handle: Uint8Array): Promise<PeerMemory>;
  /**
   * Addresses for another rank's window of such a size, which is not there yet: nothing may use them before `map`.
   * @throws UnavailableError where a window's address cannot be chosen (CUDA IPC).
   */
  reserveWindow(bytes: number, purpose: string): PeerMemory;

  /** Compiles (or finds in the cache) and loads a kernel. */
  load(module: IrModule): Promise<Program>;

  /** A new order of work beside those that there are. */
  createStream(): Stream;
  /** A mark that streams record and wait for. */
  createEvent(): Event;

  /** Resolves when nothing of this device's own streams can touch memory of other ranks any more. */
  settle(): Promise<void>;
  /** Frees everything of this device. Idempotent. */
  dispose(): Promise<void>;
}

/** A piece of device memory. */
export interface Memory {
  /** Address of its first byte. */
  readonly address: number;
  /** Its length, as it was asked for. */
  readonly bytes: number;
  /** Gives it back. Nothing enqueued may still use it. */
  free(): void;
}

/**
 * Host memory that kernels read and write while the host looks at it. Kernels must order their side at scope `sys`; the
 * host's side is ordered by `host`.
 */
export interface MappedMemory extends Memory {
  /** The host's accesses. */
  readonly host: HostView;
  /** All bytes, to hand on to a NIC. Reads and writes made here have no order, and no checker sees them. */
  readonly raw: Uint8Array;
}

/** Where the bytes of a wire lie that NICs reach. */
export type WireSide = 'host' | 'gpu';

/** Memory of a wire, all at one address. NICs reach the bytes from `front` on; those before belong to the host. */
export interface WireShape {
  readonly bytes: number;
  /** A multiple of 16. */
  readonly front: number;
  readonly side: WireSide;
}

/**
 * A wire that lies in host memory is all visible to the host. Of one in the GPU's memory the host sees only the bytes before `front`:
 * `host` and `raw` end there, and no copy or fill of a stream may cross that place.
 */
export interface WireMemory extends MappedMemory, WireShape {
  /** The bytes from `front` on, as NICs reach them. */
  readonly nics: ReachedHost | ReachedGpu;
}

export interface ReachedHost {
  readonly kind: 'host';
  readonly raw: Uint8Array;
}

/** Memory of a GPU; threads can send each other what it says. */
export interface ReachedGpu {
  readonly kind: 'gpu';
  readonly address: number;
  readonly bytes: number;
  /** The CUDA device's ordinal. */
  readonly ordinal: number;
  /** A dmabuf of it, where the driver makes one, and where in that the memory begins. */
  readonly dmabuf?: { readonly fd: number; readonly offset: number };
  /** Kernels see what a NIC has written only behind a flush by the host. */
  readonly flush: boolean;
}

/** One host thread's way to memory that others use at the same time. Nothing here allocates. */
export interface HostView {
  /** The u32 at a byte offset, acquired: what came before its release is there. */
  load(offset: number): number;
  /** Releases a u32: whoever acquires it sees what this thread did before. */
  store(offset: number, value: number): void;
  /** Copies bytes out; something must have ordered them after who wrote them. */
  read(offset: number, into: Uint8Array): void;
  /** Copies bytes in; a `store` after it publishes them. */
  write(offset: number, from: Uint8Array): void;
}

/** Bytes of a window that begin as something else than zero. */
export interface Fill {
  readonly offset: number;
  readonly bytes: number;
  readonly value: number;
}

export interface WindowMemory extends Memory {
  /** The handle that another rank needs to map it: opaque, at most 4 KiB, may cross processes. */
  readonly handle: Uint8Array;
  /**
   * Declares that nobody may count on these bytes being zero. The checked simulator reports who reads them before
   * anyone wrote them; elsewhere this does nothing.
   */
  poison(offset: number, bytes: number): void;
}

export interface PeerMemory {
  readonly address: number;
  /**
   * Maps another window of the same size there instead: kernels and graphs that hold the address reach that one from then on. None
   * that reaches the one before may run. Where it throws, nothing has changed, or nothing is mapped there any more.
   */
  map(handle: Uint8Array): Promise<void>;
  close(): void;
}

/** The windows of a node's ranks as one of them sees them. Ranks count within the node, here and in kernels. */
export interface Window {
  /** The rank whose view this is: what kernels call `g.rank`. */
  readonly rank: number;
  /** [rank]: where that rank's window is mapped here. */
  readonly bases: readonly number[];
  /** The length of each. */
  readonly bytes: number;
}

/** A tensor of which a kernel moves boxes: rows one behind the other, maybe several matrices of them. */
export interface Tensor {
  /** Address of its first element: a multiple of 16. */
  readonly address: number;
  /** Elements in each dimension, the outermost first: [rows, columns], or [matrices, rows, columns]. */
  readonly extents: readonly number[];
  /** Bytes from one row to the next, and before that from one matrix to the next: multiples of 16. By default, without gaps. */
  readonly strides?: readonly number[];
}

export interface LaunchShape {
  /** Blocks. */
  readonly grid: number;
  /** Threads a block, at most the module's `maxThreads`. */
  readonly block: number;
  /** Programmatic dependent launch: may start before the previous kernel of the stream has ended. */
  readonly programmatic?: boolean;
  /** The kernel's `g.rank`: this rank, counted as the kernel's windows are. */
  readonly rank: number;
}

/** A compiled kernel. Make a launcher per call site; setting and launching allocate nothing. */
export interface Program {
  /** The kernel that was compiled. */
  readonly module: IrModule;
  /** For launches of this shape. */
  launcher(shape: LaunchShape): Launcher;
}

/** One call site of a kernel: its parameters keep their values from launch to launch. */
export interface Launcher {
  /** Sets a scalar or pointer parameter by its flattened name (`tokens`, `payloads_1`). */
  set(name: string, value: number | bigint): void;
  /** Sets a parameter that is a window. */
  setWindow(name: string, window: Window): void;
  /** Sets a parameter that is a tensorMap. */
  setTensor(name: string, tensor: Tensor): void;
  /** Changes the number of blocks for later launches. */
  setGrid(grid: number): void;
  /** Enqueues. Throws if a parameter was never set. */
  launch(stream: Stream): void;
}

/** Work in order. Errors of enqueued work surface in `synchronize` and `copyOut`. */
export interface Stream {
  /** Takes the bytes before it returns: the caller may overwrite them at once. */
  copyIn(to: number, bytes: Uint8Array): void;
  /** Resolves with the bytes there once everything enqueued before is done. */
  copyOut(from: number, bytes: number): Promise<Uint8Array>;
  /** Copies within this device, or between memory that it can address. */
  copy(to: number, from: number, bytes: number): void;
  /** Sets every byte to `value`. */
  fill(to: number, bytes: number, value: number): void;
  /** Marks this point: `event` is done when everything enqueued before is. */
  record(event: Event): void;
  /** Work that is enqueued from here on begins when `event`, as last recorded, is done. */
  wait(event: Event): void;
  /** Resolves when everything enqueued so far is done. */
  synchronize(): Promise<void>;
  /** Whether what is enqueued now becomes part of a graph, also by way of another stream's capture. */
  readonly capturing: boolean;
  /** Records what is enqueued until `endCapture` instead of running it (launches, copies, fills; no copyOut). */
  beginCapture(): void;
  /** The work that was enqueued since `beginCapture`, as one piece. */
  endCapture(): Graph;
  /** Frees the stream. Idempotent. */
  dispose(): void;
}

/** Captured work, replayed with the parameter values that its launchers had when captured. */
export interface Graph {
  /** Enqueues all of it. */
  launch(stream: Stream): void;
  /** Frees the graph. Idempotent. */
  dispose(): void;
}

/** A point in a stream's work: to wait for, or to measure between. */
export interface Event {
  /** Milliseconds from `start` to this event, both recorded and done. */
  elapsedSince(start: Event): number;
  /** Frees the event. Idempotent. */
  dispose(): void;
}
