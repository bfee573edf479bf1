/**
 * What the same rows cost with NVSHMEM's own all-to-all: padded to all tokens for every rank, as it takes no counts. Its
 * rows lie packed already, and nobody adds up what comes back.
 */
import { CudaDevice, CudaStream, type NvshmemHeap } from '../../gpu/cuda/index.js';
import type { SharedWindow } from '../../net/world/index.js';
import { combineRow, dispatchRow, type NcclPhase } from './nccl.js';
import type { Steps, Timing } from './timing.js';
import type { Workload } from './workload.js';

export class NvshmemRound {
  readonly #heap: NvshmemHeap;
  readonly #stream: CudaStream;
  readonly #bytes: Readonly<Record<NcclPhase, number>>;
  readonly #from: SharedWindow;
  readonly #to: SharedWindow;

  private constructor(
    heap: NvshmemHeap,
    stream: CudaStream,
    bytes: Readonly<Record<NcclPhase, number>>,
    from: SharedWindow,
    to: SharedWindow,
  ) {
    this.#heap = heap;
    this.#stream = stream;
    this.#bytes = bytes;
    this.#from = from;
    this.#to = to;
  }

  /** Every rank calls it. Null where the world's ranks are not part of NVSHMEM. */
  static async create({ world, stream }: Timing, of: Workload, tokens: number): Promise<NvshmemRound | null> {
    const { device, ranks } = world;
    if (!(device instanceof CudaDevice && stream instanceof CudaStream) || device.nvshmem === null)
      return null;
    const bytes = { dispatch: tokens * dispatchRow(of), combine: tokens * combineRow(of) };
    const most = ranks * Math.max(bytes.dispatch, bytes.combine);
    const from = await world.createSymmetricWindow(most, 'what NVSHMEM sends');
    const to = await world.createSymmetricWindow(most, 'what NVSHMEM receives');
    return new NvshmemRound(device.nvshmem, stream, bytes, from, to);
  }

  /** Dispatch, then combine. */
  get both(): Steps {
    const heap = this.#heap;
    const stream = this.#stream;
    const bytes = this.#bytes;
    const from = this.#from;
    const to = this.#to;
    return (['dispatch', 'combine'] as const).map((phase) => () => {
      heap.alltoall(to.own.address, from.own.address, bytes[phase], stream.handle);
    });
  }

  /** Every rank calls it, when its stream is done. */
  free(): void {
    this.#to.close();
    this.#from.close();
  }
}
