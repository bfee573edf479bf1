import { ArgumentError, requireInteger, requireObject } from '../../../base/errors.js';
import { type Address, addressOf, allocate, type NativeMemory, view } from '../../../base/native/index.js';
import { knowsDmabuf } from '../libfabric/bindings.js';
import type { LocalMemory, Reach } from '../libfabric/endpoint.js';
import type { Driver } from './driver.js';
import { type Path, Region } from './handles.js';

/** GPU memory to register. */
export interface GpuMemory {
  readonly address: Address;
  readonly bytes: number;
  /** The CUDA device's ordinal. */
  readonly ordinal: number;
  /** A dmabuf of the memory, where the driver exports one, and where in it the memory begins. */
  readonly dmabuf?: { readonly fd: number; readonly offset: number };
}

/** The memory that an engine has registered, and what it has allocated for that. */
export class EngineMemory {
  readonly #regions = new Set<number>();
  /** By region: what was allocated for it. It may outlive the region, see `freeSettled`. */
  readonly #allocations = new Map<number, NativeMemory>();
  #nextIndex = 1;
  #closed = false;
  readonly #driver: Driver;
  readonly #engineId: string;
  /** Whether the provider was asked for GPU memory of its own. */
  readonly #gpuMemory: boolean;
  readonly #owner: object;

  constructor(driver: Driver, engineId: string, gpuMemory: boolean, owner: object) {
    this.#driver = driver;
    this.#engineId = engineId;
    this.#gpuMemory = gpuMemory;
    this.#owner = owner;
  }

  allocate(bytes: number): Region {
    return this.#openAllocated(bytes, 'host');
  }

  register(buffer: ArrayBufferView | ArrayBufferLike): Region {
    if (
      !ArrayBuffer.isView(buffer) &&
      !(buffer instanceof ArrayBuffer) &&
      !(buffer instanceof SharedArrayBuffer)
    ) {
      throw new ArgumentError('buffer', buffer, 'a typed array or a buffer');
    }
    requireInteger('buffer.byteLength', buffer.byteLength, 1, Number.MAX_SAFE_INTEGER);
    const address = addressOf(buffer);
    // The closure keeps the buffer alive as long as the region.
    return this.#open({ address, bytes: buffer.byteLength, reach: { kind: 'host' } }, 'host', () => {
      void buffer;
      return view(address, buffer.byteLength);
    });
  }

  registerGpu(memory: GpuMemory): Region {
    requireObject('memory', memory);
    const { address, bytes, ordinal, dmabuf } = memory;
    requireInteger('address', address, 1, Number.MAX_SAFE_INTEGER);
    requireInteger('bytes', bytes, 1, Number.MAX_SAFE_INTEGER);
    requireInteger('ordinal', ordinal, 0, 2 ** 15);
    const noBuffer = (): never => {
      throw new ArgumentError('region', memory, 'host or staged memory to have a buffer');
    };
    const ways: [Path, Reach][] = [];
    if (this.#gpuMemory) {
      if (dmabuf && knowsDmabuf()) ways.push(['dmabuf', { kind: 'dmabuf', ordinal, ...dmabuf }]);
      ways.push(['provider', { kind: 'cuda', ordinal }]);
    }
    for (const [path, reach] of ways) {
      try {
        return this.#open({ address, bytes, reach }, path, noBuffer);
      } catch {
        // The provider refuses to register the memory in this way, so the next is tried. The result's `path` says which one it took.
      }
    }
    return this.#openAllocated(bytes, 'staging');
  }

  /** Frees the memory of closed regions that no given-up request reads any more. */
  freeSettled(): void {
    const lingering = new Set(this.#driver.call('stillLingering'));
    for (const [index, memory] of this.#allocations) {
      if (this.#regions.has(index) || lingering.has(index)) continue;
      memory.release();
      this.#allocations.delete(index);
    }
  }

  /** After the driver is closed, nothing reads it any more. Typed arrays on it may still be in the caller's hands. */
  close(): void {
    this.#closed = true;
    for (const memory of this.#allocations.values()) memory.release();
    this.#allocations.clear();
  }

  #openAllocated(bytes: number, path: Path): Region {
    const memory = allocate(bytes);
    try {
      const reach = { kind: 'host' } as const;
      const region = this.#open({ address: memory.address, bytes, reach }, path, () => memory.buffer);
      this.#allocations.set(region.index, memory);
      return region;
    } catch (error) {
      memory.free();
      throw error;
    }
  }

  #open(local: LocalMemory, path: Path, memory: () => ArrayBuffer): Region {
    const index = this.#nextIndex++; // never used again
    const rails = this.#driver.call('register', index, local);
    this.#regions.add(index);
    const { address, bytes } = local;
    return new Region(index, address, bytes, path, this.#engineId, rails, this.#owner, memory, () =>
      this.#forget(index),
    );
  }

  #forget(index: number): void {
    this.#regions.delete(index);
    if (this.#closed) return;
    this.#driver.call('deregister', index);
    this.freeSettled();
  }
}
