/**
 * Wires whose messages lie in the GPU's memory: one range of addresses, of which the front is the host's memory and what is
 * behind it the GPU's. So kernels need not know: a section is where its layout says. Both are whole pages of CUDA's virtual
 * memory, with the front at the end of the first.
 */

import { UnavailableError } from '../../base/errors.js';
import type { WireShape } from '../index.js';
import { Context, check } from './driver.js';
import type { Gpu } from './gpu.js';
import * as virtual from './virtual.js';

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
 * Allocates a wire of that shape in the context's GPU's memory. The front is the host's at the same address.
 * @throws UnavailableError where NICs could not use it.
 */
export function allocateGpuWire(context: Context, gpu: Gpu, { bytes, front }: WireShape, purpose: string) {
  const why = whyNotReached(gpu);
  if (why !== null) throw new UnavailableError(`GPU ${gpu.ordinal} (${gpu.name}) ${why}`, remedy);
  context.use();
  const what = virtual.describe(bytes, purpose, gpu);
  const ofHost = () => virtual.writeProperties(context, virtual.onHost(gpu));
  const ofGpu = () => virtual.writeProperties(context, virtual.onGpu(gpu), { rdma: gpu.rdmaMemory });
  const pieces = [ofHost, ofGpu].map((write) => {
    write();
    return virtual.granularity(context, 'least', what);
  });
  const page = Math.max(...pieces);
  const whole = (length: number): number => Math.ceil(length / page) * page;
  const [hostBytes, gpuBytes] = [whole(front), whole(bytes - front)];
  return virtual.undoable(context, what, (steps) => {
    const start = steps.reserve(hostBytes + gpuBytes, page);
    const map = (range: virtual.Range, write: () => void, locations: readonly virtual.Location[]): void => {
      if (range.bytes === 0) return;
      write();
      steps.map(range, steps.create(range.bytes));
      virtual.grant(context, range, locations, what);
    };
    map({ address: start, bytes: hostBytes }, ofHost, [virtual.onGpu(gpu), virtual.onHost(gpu)]);
    map({ address: start + hostBytes, bytes: gpuBytes }, ofGpu, [virtual.onGpu(gpu)]);
    return { address: start + hostBytes - front };
  });
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
