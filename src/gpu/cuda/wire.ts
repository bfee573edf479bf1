/**
 * Wires whose messages lie in the GPU's memory: one range of addresses, of which the front is the host's memory and what is
 * behind it the GPU's. So kernels need not know: a section is where its layout says. Both are whole pages of CUDA's virtual
 * memory, with the front at the end of the first.
 */

import { UnavailableError } from '../../base/errors.js';
import type { Address } from '../../base/native/index.js';
import type { WireShape } from '../index.js';
import { Context, check } from './driver.js';
import type { Gpu } from './gpu.js';
import { locationDevice, writeProperties } from './sharing.js';
import { describe, outOfMemory, readWrite, unwind } from './window.js';

/** Where a wire lies. The front is the host's at the same address. */
interface GpuWire {
  readonly address: Address;
  release(): void;
}

/** CUmemLocationType. */
const locationHostNode = 3;

const remedy = 'Let wires lie in host memory: HEDDLE_WIRES=host';

/** Why NICs cannot write into memory of this GPU for its kernels to read; null where they can, for all that the driver says. */
function whyNotReached(gpu: Gpu): string | null {
  if (!gpu.rdmaMemory) return 'has no memory that NICs reach (GPUDirect RDMA)';
  if (!gpu.hostVirtualMemory)
    return 'cannot map host memory beside its own (a driver before 12.6, or one without host nodes)';
  if (!gpu.ordersNics && !gpu.flushesNics)
    return 'neither orders what NICs write before what its kernels hear of it, nor lets the host do that';
  return null;
}

/**
 * Allocates a wire of that shape in the context's GPU's memory.
 * @throws UnavailableError where NICs could not use it.
 */
export function allocateGpuWire(
  context: Context,
  gpu: Gpu,
  { bytes, front }: WireShape,
  purpose: string,
): GpuWire {
  const why = whyNotReached(gpu);
  if (why !== null) throw new UnavailableError(`GPU ${gpu.ordinal} (${gpu.name}) ${why}`, remedy);
  context.use();
  const d = context.driver;
  const what = describe(bytes, purpose, gpu);
  const ofHost = () => writeHostProperties(context, gpu);
  const ofGpu = () => writeProperties(context, gpu, 0);
  const page = Math.max(...[ofHost, ofGpu].map((write) => granularity(context, write, what)));
  const [hostBytes, gpuBytes] = [front, bytes - front].map((length) => Math.ceil(length / page) * page) as [
    number,
    number,
  ];
  const undo: (() => void)[] = [];
  const release = () => unwind(context, undo);
  try {
    const all = hostBytes + gpuBytes;
    check(d.cuMemAddressReserve(d.out.address, all, page, 0, 0), 'cuMemAddressReserve', what);
    const start = d.out.number();
    undo.push(() => check(d.cuMemAddressFree(start, all), 'cuMemAddressFree', what));
    const map = (at: Address, length: number, write: () => void, places: readonly number[]): void => {
      if (length === 0) return;
      write();
      const created = d.cuMemCreate(d.out.address + 32, length, d.out.address, 0);
      if (created !== 0) throw outOfMemory(context, created, 'cuMemCreate', what);
      const memory = d.out.u64[4]!;
      undo.push(() => check(d.cuMemRelease(memory), 'cuMemRelease', what));
      check(d.cuMemMap(at, length, 0, memory, 0), 'cuMemMap', what);
      undo.push(() => check(d.cuMemUnmap(at, length), 'cuMemUnmap', what));
      d.out.i32.set(places);
      check(d.cuMemSetAccess(at, length, d.out.address, places.length / 3), 'cuMemSetAccess', what);
    };
    const kernels = [locationDevice, gpu.ordinal, readWrite];
    map(start, hostBytes, ofHost, [...kernels, locationHostNode, gpu.hostNode, readWrite]);
    map(start + hostBytes, gpuBytes, ofGpu, kernels);
    return { address: start + hostBytes - front, release };
  } catch (error) {
    release();
    throw error;
  }
}

function granularity(
  { driver: { out, cuMemGetAllocationGranularity } }: Context,
  write: () => void,
  what: string,
): number {
  write();
  check(
    cuMemGetAllocationGranularity(out.address + 32, out.address, 0),
    'cuMemGetAllocationGranularity',
    what,
  );
  return out.number(4);
}

/** CUmemAllocationProp of host memory near the GPU. */
function writeHostProperties({ driver: { out } }: Context, gpu: Gpu): void {
  const pinned = 1;
  out.bytes.fill(0);
  out.i32.set([pinned, 0, locationHostNode, gpu.hostNode]);
}

/** Puts what NICs have written before what is told afterwards; for one thread. */
export class GpuFlush {
  readonly #context: Context;

  constructor(ordinal: number) {
    this.#context = new Context(ordinal);
  }

  flush(): void {
    const currentContext = 0;
    const toOwner = 100;
    this.#context.use();
    check(
      this.#context.driver.cuFlushGPUDirectRDMAWrites(currentContext, toOwner),
      'cuFlushGPUDirectRDMAWrites',
    );
  }

  close(): void {
    this.#context.release();
  }
}
