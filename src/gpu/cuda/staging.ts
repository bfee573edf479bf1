import { type Address, view } from '../../base/native/index.js';
import { type Context, check } from './driver.js';
import { CUDA_ERROR_NOT_READY } from './errors.js';

/** Page-locked host memory that GPUs can read and write. */
export interface Pinned {
  readonly address: Address;
  readonly bytes: Uint8Array;
}

const smallest = 2 ** 12;
/** Bytes of the largest buffer. A longer copy takes several. */
const largest = 2 ** 26;
/** Node.js 20 cannot view more at once. */
export const largestCopy = 2 ** 32 - 2 ** 12;

/**
 * Page-locked buffers that copies between host and GPU go through: a copy from ordinary memory would make the
 * driver wait for the stream. Buffers are used again once the event recorded behind their copy has passed. Until the device is
 * disposed of none is freed, for the driver would wait for all that runs: there are as many as copies have needed at one time.
 */
export class Staging {
  readonly #context: Context;
  readonly #free = new Map<number, Pinned[]>();
  readonly #busy: { readonly pinned: Pinned; readonly event: Address }[] = [];
  readonly #events: Address[] = [];

  constructor(context: Context) {
    this.#context = context;
  }

  /** Buffers that hold so many bytes together: each of them is full but the last. */
  take(bytes: number): readonly Pinned[] {
    this.#collect();
    const taken: Pinned[] = [];
    try {
      for (let left = bytes; left > 0; left -= largest) taken.push(this.#takeOne(Math.min(left, largest)));
    } catch (error) {
      for (const pinned of taken) this.give(pinned);
      throw error;
    }
    return taken;
  }

  #takeOne(bytes: number): Pinned {
    const size = Math.max(smallest, 2 ** Math.ceil(Math.log2(bytes)));
    return this.#free.get(size)?.pop() ?? allocatePinned(this.#context, size, 'a copy buffer');
  }

  give(pinned: Pinned): void {
    const size = pinned.bytes.length;
    const kept = this.#free.get(size);
    if (kept === undefined) this.#free.set(size, [pinned]);
    else kept.push(pinned);
  }

  /** Gives the buffer back once the work enqueued on the stream so far is done. */
  giveAfter(pinned: Pinned, stream: Address): void {
    const event = this.takeEvent();
    check(this.#context.driver.cuEventRecord(event, stream), 'cuEventRecord');
    this.#busy.push({ pinned, event });
  }

  /** An event without timing, for internal use. */
  takeEvent(): Address {
    const { out, cuEventCreate } = this.#context.driver;
    const disableTiming = 2;
    const kept = this.#events.pop();
    if (kept !== undefined) return kept;
    check(cuEventCreate(out.address, disableTiming), 'cuEventCreate');
    return out.number();
  }

  giveEvent(event: Address): void {
    this.#events.push(event);
  }

  #collect(): void {
    for (let i = this.#busy.length - 1; i >= 0; i--) {
      const { pinned, event } = this.#busy[i]!;
      const state = this.#context.driver.cuEventQuery(event);
      if (state === CUDA_ERROR_NOT_READY) continue;
      // A failed stream is reported by whoever waits for it; its copies are over all the same.
      this.#busy.splice(i, 1);
      this.giveEvent(event);
      this.give(pinned);
    }
  }

  /** Frees everything. All streams must have finished. */
  dispose(): void {
    for (const { pinned, event } of this.#busy.splice(0)) {
      this.giveEvent(event);
      freePinned(this.#context, pinned);
    }
    for (const pinned of [...this.#free.values()].flat()) freePinned(this.#context, pinned);
    this.#free.clear();
    for (const event of this.#events.splice(0)) this.#context.driver.cuEventDestroy(event);
  }
}

const portable = 1;
const deviceMapped = 2;

export function allocatePinned(context: Context, bytes: number, purpose: string): Pinned {
  context.use();
  const { out, cuMemHostAlloc } = context.driver;
  const allocated = cuMemHostAlloc(out.address, bytes, portable | deviceMapped);
  check(allocated, 'cuMemHostAlloc', `allocating ${bytes} bytes of page-locked host memory for ${purpose}`);
  const address = out.number();
  return { address, bytes: new Uint8Array(view(address, bytes)) };
}

export function freePinned(context: Context, pinned: Pinned): void {
  context.use();
  check(context.driver.cuMemFreeHost(pinned.address), 'cuMemFreeHost');
}
