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
export function createMemory(driver: Driver, engineId: string, gpuMemory: boolean, owner: object) {
  const regions = new Set<number>();
  /** By region: what was allocated for it. It may outlive the region, see `freeSettled`. */
  const allocations = new Map<number, NativeMemory>();
  let nextIndex = 1;
  let closed = false;

  function register(buffer: ArrayBufferView | ArrayBufferLike): Region {
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
    return open({ address, bytes: buffer.byteLength, reach: { kind: 'host' } }, 'host', () => {
      void buffer;
      return view(address, buffer.byteLength);
    });
  }

  function registerGpu(memory: GpuMemory): Region {
    requireObject('memory', memory);
    const { address, bytes, ordinal, dmabuf } = memory;
    requireInteger('address', address, 1, Number.MAX_SAFE_INTEGER);
    requireInteger('bytes', bytes, 1, Number.MAX_SAFE_INTEGER);
    requireInteger('ordinal', ordinal, 0, 2 ** 15);
    const noBuffer = (): never => {
      throw new ArgumentError('region', memory, 'host or staged memory to have a buffer');
    };
    const ways: [Path, Reach][] = [];
    // The provider was asked for GPU memory of its own.
    if (gpuMemory) {
      if (dmabuf && knowsDmabuf()) ways.push(['dmabuf', { kind: 'dmabuf', ordinal, ...dmabuf }]);
      ways.push(['provider', { kind: 'cuda', ordinal }]);
    }
    for (const [path, reach] of ways) {
      try {
        return open({ address, bytes, reach }, path, noBuffer);
      } catch {
        // The provider refuses to register the memory in this way, so the next is tried. The result's `path` says which one it took.
      }
    }
    return openAllocated(bytes, 'staging');
  }

  /** Frees the memory of closed regions that no given-up request reads any more. */
  function freeSettled(): void {
    const lingering = new Set(driver.call('stillLingering'));
    for (const [index, memory] of allocations) {
      if (regions.has(index) || lingering.has(index)) continue;
      memory.release();
      allocations.delete(index);
    }
  }

  /** After the driver is closed, nothing reads it any more. Typed arrays on it may still be in the caller's hands. */
  function close(): void {
    closed = true;
    for (const memory of allocations.values()) memory.release();
    allocations.clear();
  }

  function openAllocated(bytes: number, path: Path): Region {
    const memory = allocate(bytes);
    try {
      const reach = { kind: 'host' } as const;
      const region = open({ address: memory.address, bytes, reach }, path, () => memory.buffer);
      allocations.set(region.index, memory);
      return region;
    } catch (error) {
      memory.free();
      throw error;
    }
  }

  function open(local: LocalMemory, path: Path, memory: () => ArrayBuffer): Region {
    const index = nextIndex++; // never used again
    const rails = driver.call('register', index, local);
    regions.add(index);
    const { address, bytes } = local;
    return new Region(index, address, bytes, path, engineId, rails, owner, memory, () => forget(index));
  }

  function forget(index: number): void {
    regions.delete(index);
    if (closed) return;
    driver.call('deregister', index);
    freeSettled();
  }

  return {
    allocate: (bytes: number) => openAllocated(bytes, 'host'),
    register,
    registerGpu,
    freeSettled,
    close,
  };
}
