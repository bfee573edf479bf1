import { type Address, allocate, type NativeMemory, view } from '../../../base/native/index.js';
import { type Shared, word } from '../core/shared.js';
import type { Driver } from './driver.js';
import type { Peer } from './handles.js';

/** A message that a peer sent with `send`. */
export interface Message {
  /** Who sent it; null for an engine that was not added as a peer (yet), which then can only say its id. */
  readonly from: Peer | null;
  readonly engine: string;
  readonly bytes: Uint8Array;
}

/** Every message begins with the id of the engine that sent it: no provider need tell where a message is from. */
export const engineIdBytes = 8;

/** The messages that came in, in the core's receive buffers. One is copied out when it is asked for. */
export class Inbox {
  readonly #control: Int32Array;
  readonly #entries: Int32Array;
  readonly #mask: number;
  readonly #memory: Uint8Array;
  #head = 0;
  readonly #messageBytes: number;

  constructor(shared: Shared, buffers: Address, messageBytes: number) {
    this.#messageBytes = messageBytes;
    this.#control = new Int32Array(shared.control);
    this.#entries = new Int32Array(shared.inbox);
    this.#mask = this.#entries.length / 2 - 1;
    this.#memory = new Uint8Array(view(buffers, (this.#entries.length / 2) * messageBytes));
  }

  get empty(): boolean {
    return Atomics.load(this.#control, word.inboxTail) === this.#head;
  }

  /** Copies the oldest message out; `buffer` is then free to receive again. */
  take(): { buffer: number; engine: string; bytes: Uint8Array } {
    const at = 2 * (this.#head & this.#mask);
    this.#head = (this.#head + 1) | 0;
    const buffer = this.#entries[at]!;
    const start = buffer * this.#messageBytes;
    const engine = Buffer.from(this.#memory.subarray(start, start + engineIdBytes)).toString('hex');
    const bytes = this.#memory.slice(start + engineIdBytes, start + this.#entries[at + 1]!);
    return { buffer, engine, bytes };
  }
}

/** Where outgoing messages lie until they are sent, so that `send` may return at once. */
export class Outbox {
  readonly #blocks: { memory: NativeMemory; region: number }[] = [];
  readonly #free: number[] = [];
  readonly #driver: Driver;
  readonly #engine: Uint8Array;
  readonly #messageBytes: number;
  readonly #nextRegion: () => number;

  constructor(driver: Driver, engine: Uint8Array, messageBytes: number, nextRegion: () => number) {
    this.#driver = driver;
    this.#engine = engine;
    this.#messageBytes = messageBytes;
    this.#nextRegion = nextRegion;
  }

  /**
   * Copies a message into a place of its own. The place of a message that failed is never used again: the
   * provider may still send it, and must then not send another's bytes.
   */
  put(bytes: Uint8Array): { place: number; address: Address; region: number; length: number } {
    if (this.#free.length === 0) this.#grow();
    const place = this.#free.pop()!;
    const { memory, region } = this.#blocks[Math.floor(place / placesPerBlock)]!;
    const offset = (place % placesPerBlock) * this.#messageBytes;
    const target = new Uint8Array(memory.buffer, offset, this.#messageBytes);
    target.set(this.#engine);
    target.set(bytes, engineIdBytes);
    return { place, region, address: memory.address + offset, length: engineIdBytes + bytes.length };
  }

  release(place: number): void {
    this.#free.push(place);
  }

  close(): void {
    for (const { memory } of this.#blocks) memory.free();
  }

  #grow(): void {
    const memory = allocate(placesPerBlock * this.#messageBytes);
    const region = this.#nextRegion();
    this.#driver.call('register', region, memory.address, memory.bytes, { kind: 'host' });
    const first = this.#blocks.length * placesPerBlock;
    this.#blocks.push({ memory, region });
    for (let place = first; place < first + placesPerBlock; place++) this.#free.push(place);
  }
}

const placesPerBlock = 32;
