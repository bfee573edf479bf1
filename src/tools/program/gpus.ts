/** Streams as CUDA orders them. */
import type { SimDevice, SimEvent, SimStream } from '../../gpu/sim/index.js';
import { CallError, cuda } from './calls.js';
import { recorded } from './graphs.js';

/** A stream of CUDA's. Those that block take turns with the default stream of their device. */
interface Queue {
  readonly stream: SimStream;
  readonly blocks: boolean;
  /** It has work that the default stream has not waited for. */
  dirty: boolean;
  /** The state of the default stream that it has waited for. */
  saw: number;
}

export class Gpu {
  readonly device: SimDevice;
  readonly #default: Queue;
  readonly #perThread: Queue;
  readonly queues = new Map<number, Queue>();
  /** Streams in which nothing but hosts' waits has been. */
  readonly #idle: SimStream[] = [];
  #state = 0;
  #mark: SimEvent | null = null;

  constructor(device: SimDevice) {
    this.device = device;
    this.#default = this.#made(true);
    this.#perThread = this.#made(true);
    this.queues.set(2, this.#perThread);
  }

  #made(blocks: boolean): Queue {
    return { stream: this.device.createStream(), blocks, dirty: false, saw: 0 };
  }

  add(number: number, blocks: boolean): void {
    this.queues.set(number, this.#made(blocks));
  }

  /** The stream goes once its work is done. */
  remove(number: number): void {
    this.queues.get(number)?.stream.reached(() => this.queues.delete(number));
  }

  /** The stream, in which what is enqueued next is in CUDA's order: behind the default stream's work, or that of all others. */
  ordered(number: number): SimStream {
    const queue = number <= 1 ? this.#default : this.queues.get(number);
    if (queue === undefined) throw new CallError(cuda.handle, `there is no stream ${number}`);
    if (queue === this.#default) {
      for (const one of this.queues.values()) {
        if (!one.blocks || !one.dirty) continue;
        queue.stream.wait(recorded(one.stream));
        one.dirty = false;
      }
      this.#state++;
      this.#mark = null;
    } else if (queue.blocks) {
      if (queue.saw !== this.#state) {
        this.#mark ??= recorded(this.#default.stream);
        queue.stream.wait(this.#mark);
        queue.saw = this.#state;
      }
      queue.dirty = true;
    }
    return queue.stream;
  }

  async synchronize(): Promise<void> {
    const all = [this.#default, ...this.queues.values()];
    await Promise.all(all.map(({ stream }) => stream.synchronize()));
  }

  /** Waits for an event, and for nothing else. */
  async reached(event: SimEvent): Promise<void> {
    const stream = this.#idle.pop() ?? this.device.createStream();
    stream.wait(event);
    await stream.synchronize();
    this.#idle.push(stream);
  }
}
