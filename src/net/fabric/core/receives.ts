import { type Address, allocate, type NativeMemory } from '../../../base/native/index.js';
import type { Rail, Registration } from '../libfabric/endpoint.js';
import { type Shared, word } from './shared.js';

/** Completion contexts of receives carry this in their upper half, those of requests a smaller number. */
export const receiveContext = 0x4000_0000;

/** The core's side of messages: buffers that libfabric may fill, and the ring that tells the front which it did. */
export class Receives {
  readonly #memory: NativeMemory;
  readonly #registration: Registration;
  readonly #control: Int32Array;
  readonly #inbox: Int32Array;
  readonly #mask: number;
  readonly #unposted: number[] = [];
  #tail = 0;
  readonly #rail: Rail;
  readonly #messageBytes: number;

  constructor(shared: Shared, rail: Rail, count: number, messageBytes: number) {
    this.#rail = rail;
    this.#messageBytes = messageBytes;
    this.#control = new Int32Array(shared.control);
    this.#inbox = new Int32Array(shared.inbox);
    this.#mask = this.#inbox.length / 2 - 1;
    this.#memory = allocate(count * messageBytes);
    this.#registration = rail.register(this.#memory.address, this.#memory.bytes, { kind: 'host' });
    for (let index = 0; index < count; index++) this.#unposted.push(index);
    this.#postAll();
  }

  /** The buffers, `messageBytes` each. */
  get address(): Address {
    return this.#memory.address;
  }

  /** A message has landed in buffer `index`. */
  deliver(index: number, bytes: number): void {
    const at = 2 * (this.#tail & this.#mask);
    this.#inbox[at] = index;
    this.#inbox[at + 1] = bytes;
    this.#tail = (this.#tail + 1) | 0;
    Atomics.store(this.#control, word.inboxTail, this.#tail);
  }

  /** Buffer `index` may receive again. */
  post(index: number): void {
    this.#unposted.push(index);
    this.#postAll();
  }

  close(): void {
    this.#rail.deregister(this.#registration);
    this.#memory.free();
  }

  #postAll(): void {
    while (this.#unposted.length > 0) {
      const index = this.#unposted[this.#unposted.length - 1]!;
      const status = this.#rail.postReceive(
        this.#memory.address + index * this.#messageBytes,
        this.#messageBytes,
        this.#registration,
        (BigInt(receiveContext) << 32n) | BigInt(index),
      );
      // No room: the next consumed message tries again.
      if (status !== 0) return;
      this.#unposted.pop();
    }
  }
}
