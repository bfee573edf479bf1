/**
 * Memory of the simulated machine: buffers, the addresses under which hosts know them, and, in checked mode, which
 * bytes were ever written.
 */
import { ArgumentError, HeddleError } from '../../base/errors.js';
import { byteSize, type Layout, type Space } from '../../lang/index.js';
import type { WireSide } from '../index.js';
import type { BufferInfo } from './detector/detector.js';

const noWords = new Int32Array(0);
const noFloats = new Float32Array(0);
const noHalves = new Uint16Array(0);
const noBytes = new Uint8Array(0);
const noLongs = new BigUint64Array(0);

/** A name for a range of a buffer, for findings: a field of a window, an array of shared memory. */
interface NamedRange {
  readonly name: string;
  readonly offset: number;
  readonly length: number;
  readonly elementBytes: number;
}

/**
 * One piece of memory and its views. Generated code indexes the views directly, so every buffer has the same shape
 * and all of them at all times (an empty one after `free`).
 */
export class SimBuffer implements BufferInfo {
  i32 = noWords;
  f32 = noFloats;
  u16 = noHalves;
  u8 = noBytes;
  u64 = noLongs;
  freed = false;
  /** Stands for what is not mapped yet. */
  reserved = false;
  space: Space = 'global';
  /** The place of each rank for which its addresses stand, which are multicast addresses; null: none. */
  everywhere: readonly ByteAt[] | null = null;
  /** Offset of the first byte that NICs reach, where it is a wire. */
  front = 0;
  /** Where the bytes lie that NICs reach. */
  side: WireSide = 'host';
  /** One byte for each: 1 once it was written. Null where everything counts as written. */
  initialised: Uint8Array | null = null;
  /** `initialised` as words. */
  #written: Int32Array = noWords;
  /** How many parked threads wait for a location here (checked mode wakes them at the store). */
  waiters = 0;
  readonly #names: NamedRange[] = [];

  constructor(
    readonly id: number,
    readonly purpose: string,
    readonly rank: number,
    readonly bytes: number,
  ) {
    // Rounded up so that every view fits; the bounds that count are `bytes`.
    this.lieIn(new ArrayBuffer(Math.ceil(bytes / 16) * 16));
  }

  /** The earlier bytes of the buffer do not come along. */
  lieIn(memory: ArrayBuffer): void {
    this.i32 = new Int32Array(memory);
    this.f32 = new Float32Array(memory);
    this.u16 = new Uint16Array(memory);
    this.u8 = new Uint8Array(memory);
    this.u64 = new BigUint64Array(memory);
  }

  free(): void {
    this.freed = true;
    this.i32 = noWords;
    this.f32 = noFloats;
    this.u16 = noHalves;
    this.u8 = noBytes;
    this.u64 = noLongs;
    this.initialised = null;
  }

  /** From now on a read of these bytes before a write is a finding. */
  poison(offset: number, bytes: number): void {
    const end = offset + bytes;
    if (this.initialised !== null) {
      this.initialised.fill(0, offset, end);
      return;
    }
    // Zeros that nobody has touched cost no memory.
    this.initialised = new Uint8Array(this.u8.length).fill(1, 0, offset).fill(1, end);
    this.#written = new Int32Array(this.initialised.buffer);
  }

  markInitialised(offset: number, bytes: number): void {
    const map = this.initialised;
    if (map === null) return;
    if (bytes === this.bytes) {
      this.initialised = null;
      this.#written = noWords;
    } else if (bytes > 16) map.fill(1, offset, offset + bytes);
    else if (((offset | bytes) & 3) === 0)
      for (let i = offset >>> 2; i < (offset + bytes) >>> 2; i++) this.#written[i] = 0x01010101;
    else for (let i = offset; i < offset + bytes; i++) map[i] = 1;
  }

  /** The first byte of a range that nobody wrote; −1 where all were. */
  firstUninitialised(offset: number, bytes: number): number {
    const map = this.initialised;
    if (map === null) return -1;
    const end = offset + bytes;
    let i = offset;
    // Whole words are quicker to look at; the first word that lacks a byte ends that, and its bytes follow one by one.
    if (((offset | bytes) & 3) === 0) while (i < end && this.#written[i >>> 2] === 0x01010101) i += 4;
    for (; i < end; i++) if (map[i] === 0) return i;
    return -1;
  }

  /** Sets every bit of what nobody wrote: as a float of any width that is a NaN. */
  fillUnwritten(offset: number, bytes: number): void {
    const map = this.initialised;
    if (map !== null) for (let i = offset; i < offset + bytes; i++) if (map[i] === 0) this.u8[i] = 0xff;
  }

  /** Copies which bytes were written along with the bytes themselves. */
  copyInitialised(offset: number, from: SimBuffer, fromOffset: number, bytes: number): void {
    if (from.initialised === null) {
      this.markInitialised(offset, bytes);
      return;
    }
    this.poison(offset, 0);
    this.initialised!.set(from.initialised.subarray(fromOffset, fromOffset + bytes), offset);
  }

  /** Lets findings speak of this range by name. */
  name(name: string, offset: number, elementBytes: number, length: number): void {
    if (this.#names.some((n) => n.name === name && n.offset === offset)) return;
    this.#names.push({ name, offset, elementBytes, length: elementBytes * length });
  }

  /** Names the fields of a window that starts at `offset`. */
  nameFields(layout: Layout, offset: number): void {
    for (const field of layout.fields) {
      this.name(field.name, offset + field.offset, byteSize[field.type], field.length);
    }
  }

  describe(offset: number): string {
    for (const range of this.#names) {
      const within = offset - range.offset;
      if (within < 0 || within >= range.length) continue;
      const byte = within % range.elementBytes;
      return `${range.name}[${Math.floor(within / range.elementBytes)}]${byte === 0 ? '' : ` + ${byte} bytes`}`;
    }
    return `byte ${offset}`;
  }

  /** Describes an access that is not all inside; with the name of the buffer, where one is for all of it. */
  describeOutside(offset: number, bytes: number): string {
    const whole = this.#names.find((range) => range.offset === 0 && range.length === this.bytes);
    const said = `bytes ${offset} to ${offset + bytes - 1} of ${this.bytes}`;
    return whole === undefined ? said : `${whole.name}, ${said}`;
  }
}

/** Each buffer gets 4 GiB of addresses of its own, so an address names its buffer and an overrun cannot reach another. */
export const stride = 2 ** 32;
/** Addresses stay below 2^48. */
const maxBuffers = 2 ** 16 - 1;
export const maxBufferBytes = 2 ** 31;

/** Each machine's first buffer lies so many further than that of the machine before it: a tensor of another is mostly nobody's. */
const apart = 4099;
let machines = 0;

/** Memory of the host in which memory of simulated GPUs lies, where other processes see it too, at its address. */
export interface Room {
  /** The first address, a multiple of 4 GiB, and how many buffers there may be, each 4 GiB behind the one before it. */
  readonly first: number;
  readonly most: number;
  /** Zeros, of at least so many bytes. */
  take(address: number, bytes: number): ArrayBuffer;
  give(address: number): void;
}

/** Where an address points: in the buffer that is there by now. */
export interface ByteAt {
  readonly buffer: SimBuffer;
  readonly offset: number;
}

export class AddressSpace {
  /** By which of the strides it has. */
  readonly #buffers = new Map<number, SimBuffer>();
  readonly #reusable: number[] = [];
  #first = machines++ * apart;
  #most = maxBuffers;
  #room: Room | null = null;
  /** Buffers by stride, from the first one on. Kernels that address memory by numbers look here first. */
  readonly table: SimBuffer[] = [];
  /** The stride of the table's first buffer. */
  tableBase = 1 + (this.#first % maxBuffers);

  /** From now on buffers lie there. None was placed before. */
  moveInto(room: Room): void {
    this.#room = room;
    this.#first = room.first / stride - 1;
    this.#most = room.most;
    this.tableBase = 1 + this.#first;
  }

  place(buffer: SimBuffer): number {
    const index = this.#buffers.size < this.#most ? this.#fresh() : this.#reusable.shift();
    if (index === undefined) {
      throw new HeddleError(
        'HEDDLE_OUT_OF_MEMORY',
        `the simulated machine holds ${this.#most} buffers; free some before allocating more`,
      );
    }
    if (this.#room !== null && !buffer.freed) buffer.lieIn(this.#room.take(index * stride, buffer.u8.length));
    this.put(index * stride, buffer);
    return index * stride;
  }

  /** Whoever holds the address reaches this buffer from now on. */
  put(address: number, buffer: SimBuffer): void {
    const index = address / stride;
    this.#buffers.set(index, buffer);
    // Behind the last stride the first ones follow: those are found by `at`.
    if (index >= this.tableBase && index - this.tableBase <= this.table.length)
      this.table[index - this.tableBase] = buffer;
  }

  at(index: number): SimBuffer | undefined {
    return this.#buffers.get(index);
  }

  /** The buffers in which threads wait for a change. */
  get awaited(): readonly SimBuffer[] {
    return [...this.#buffers.values()].filter(({ waiters }) => waiters > 0);
  }

  /** None is 0, which is no address. */
  #fresh(): number {
    return 1 + ((this.#first + this.#buffers.size) % maxBuffers);
  }

  /** The address of a buffer that is gone may be given to another, once no fresh one is left. */
  release(address: number): void {
    const index = address / stride;
    if (!this.#buffers.get(index)!.freed) return;
    this.#room?.give(address);
    this.#reusable.push(index);
  }

  /** The place of `bytes` bytes from `address` on. */
  find(argument: string, address: number, bytes: number): ByteAt {
    const known = Number.isInteger(address);
    const buffer = known ? this.#buffers.get(Math.floor(address / stride)) : undefined;
    const offset = known ? address % stride : 0;
    const gone = buffer?.freed === true && !buffer.reserved;
    if (buffer === undefined || gone || offset + bytes > buffer.bytes) {
      const why =
        buffer === undefined
          ? 'the address of memory that was allocated on a device of this world'
          : gone
            ? `memory that is still allocated ('${buffer.purpose}' was freed)`
            : `within the ${buffer.bytes} bytes of '${buffer.purpose}' (offset ${offset}, ${bytes} bytes)`;
      throw new ArgumentError(argument, address, why);
    }
    const [buffers, index] = [this.#buffers, Math.floor(address / stride)];
    return {
      offset,
      get buffer() {
        return buffers.get(index)!;
      },
    };
  }
}
