/**
 * What a device is: the one interface that `sim/` and `cuda/` implement and everything above uses. One Device is
 * one rank's GPU. Addresses are plain numbers (device addresses stay below 2^48).
 *
 * Everything a device does is ordered by a stream; nothing here waits for the host except what returns a promise.
 */
import type { IrModule } from '../lang/index.js';

export interface Device {
  readonly kind: 'sim' | 'cuda';
  /** For people: 'NVIDIA H200 #2', 'simulated GPU #2 (checked)'. */
  readonly description: string;
  /** Bytes of its memory: no allocation can be larger. */
  readonly memoryBytes: number;

  /** Device memory of this rank, uninitialised. `purpose` appears in errors and findings: 'receive window'. */
  allocate(bytes: number, purpose: string): Memory;
  /** Memory that other ranks of the node can address: zeros, except where `fills` say otherwise. */
  allocateWindow(bytes: number, purpose: string, fills?: readonly Fill[]): WindowMemory;
  /** Maps another rank's window here, from the bytes of its `handle`. */
  openWindow(handle: Uint8Array): Promise<PeerMemory>;

  /** Compiles (or finds in the cache) and loads a kernel. */
  load(module: IrModule): Promise<Program>;

  createStream(): Stream;
  createEvent(): Event;

  /** Frees everything of this device. Idempotent. */
  dispose(): Promise<void>;
}

/** A piece of device memory. */
export interface Memory {
  readonly address: number;
  readonly bytes: number;
  free(): void;
}

/** Bytes of a window that begin as something else than zero. */
export interface Fill {
  readonly offset: number;
  readonly bytes: number;
  readonly value: number;
}

export interface WindowMemory extends Memory {
  /** What another rank needs to map it: opaque, at most 4 KiB, may cross processes. */
  readonly handle: Uint8Array;
  /**
   * Simulated windows only: declares bytes uninitialised although windows start as zeros, so that reading them before
   * anyone wrote them is a finding.
   */
  poison?(offset: number, bytes: number): void;
}

export interface PeerMemory {
  readonly address: number;
  close(): void;
}

/** The windows of a node as one rank sees them: `bases[r]` is where rank r's window is mapped here. */
export interface Window {
  readonly rank: number;
  readonly bases: readonly number[];
  readonly bytes: number;
}

export interface LaunchShape {
  /** Blocks. */
  readonly grid: number;
  /** Threads a block, at most the module's `maxThreads`. */
  readonly block: number;
  /** Programmatic dependent launch: may start before the previous kernel of the stream has ended. */
  readonly programmatic?: boolean;
  /** This rank, the kernel's `g.rank`. */
  readonly rank: number;
}

/** A compiled kernel. Make a launcher per call site; setting and launching allocate nothing. */
export interface Program {
  readonly module: IrModule;
  launcher(shape: LaunchShape): Launcher;
}

export interface Launcher {
  /** Sets a scalar or pointer parameter by its flattened name (`tokens`, `payloads_1`). */
  set(name: string, value: number | bigint): void;
  setWindow(name: string, window: Window): void;
  /** Changes the number of blocks for later launches. */
  setGrid(grid: number): void;
  /** Enqueues. Throws if a parameter was never set. */
  launch(stream: Stream): void;
}

/** Work in order. Errors of enqueued work surface in `synchronize` and `copyOut`. */
export interface Stream {
  /** Takes the bytes before it returns: the caller may overwrite them at once. */
  copyIn(to: number, bytes: Uint8Array): void;
  copyOut(from: number, bytes: number): Promise<Uint8Array>;
  copy(to: number, from: number, bytes: number): void;
  fill(to: number, bytes: number, value: number): void;
  record(event: Event): void;
  wait(event: Event): void;
  /** Resolves when everything enqueued so far is done. */
  synchronize(): Promise<void>;
  /** Records what is enqueued until `endCapture` instead of running it (launches, copies, fills; no copyOut). */
  beginCapture(): void;
  endCapture(): Graph;
  dispose(): void;
}

/** Captured work, replayed with the parameter values that its launchers had when captured. */
export interface Graph {
  launch(stream: Stream): void;
  dispose(): void;
}

export interface Event {
  /** Milliseconds from `start` to this event, both recorded and done. */
  elapsedSince(start: Event): number;
  dispose(): void;
}
