/**
 * Memory of the simulated machine: buffers, the addresses under which hosts know them, and, in checked mode, which
 * bytes were ever written.
 */
import { ArgumentError, HeddleError } from '../../base/errors.js';
import { byteSize, type Layout, type Space } from '../../lang/index.js';
import type { Placement } from '../index.js';
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
  i32: Int32Array;
  f32: Float32Array;
  u16: Uint16Array;
  u8: Uint8Array;
  u64: BigUint64Array;
  freed = false;
  space: Space = 'global';
  /** Of a wire, the first byte that NICs reach. */
  front = 0;
  /** Where those bytes lie. */
  placement: Placement = 'host';
  /** One bit a byte, set once written; null where everything counts as written. */
  initialised: Uint8Array | null = null;
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
    const memory = new ArrayBuffer(Math.ceil(bytes / 16) * 16);
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
    if (this.initialised === null) {
      this.initialised = new Uint8Array(Math.ceil(this.bytes / 16) * 2).fill(0xff);
    }
    setBits(this.initialised, offset, bytes, false);
  }

  markInitialised(offset: number, bytes: number): void {
    const map = this.initialised;
    if (map === null) return;
    if (bytes === 16 && (offset & 7) === 0) {
      map[offset >>> 3] = 0xff;
      map[(offset >>> 3) + 1] = 0xff;
    } else if ((offset & 7) + bytes <= 8) {
      // Within a byte of the map, as all that threads access is; copies may be of any bytes.
      map[offset >>> 3]! |= ((1 << bytes) - 1) << (offset & 7);
    } else {
      setBits(map, offset, bytes, true);
    }
  }

  isInitialised(offset: number, bytes: number): boolean {
    const map = this.initialised;
    if (map === null) return true;
    if (bytes === 16 && (offset & 7) === 0)
      return map[offset >>> 3] === 0xff && map[(offset >>> 3) + 1] === 0xff;
    if ((offset & 7) + bytes <= 8) {
      const mask = ((1 << bytes) - 1) << (offset & 7);
      return (map[offset >>> 3]! & mask) === mask;
    }
    let i = offset;
    const end = offset + bytes;
    const isSet = (at: number) => ((map[at >>> 3]! >>> (at & 7)) & 1) !== 0;
    while (i < end && (i & 7) !== 0) if (!isSet(i++)) return false;
    for (; i + 8 <= end; i += 8) if (map[i >>> 3] !== 0xff) return false;
    while (i < end) if (!isSet(i++)) return false;
    return true;
  }

  /** The first byte of a range that nobody wrote. */
  /** Sets every bit of what nobody wrote: as a float of any width that is a NaN. */
  fillUnwritten(offset: number, bytes: number): void {
    if (this.isInitialised(offset, bytes)) return;
    for (let i = offset; i < offset + bytes; i++) if (!this.isInitialised(i, 1)) this.u8[i] = 0xff;
  }

  firstUninitialised(offset: number, bytes: number): number {
    for (let i = offset; i < offset + bytes; i++) if (!this.isInitialised(i, 1)) return i;
    return offset;
  }

  /** Copies which bytes were written along with the bytes themselves. */
  copyInitialised(offset: number, from: SimBuffer, fromOffset: number, bytes: number): void {
    if (from.initialised === null) {
      if (this.initialised !== null) setBits(this.initialised, offset, bytes, true);
      return;
    }
    for (let i = 0; i < bytes; i++) {
      if (from.isInitialised(fromOffset + i, 1)) this.markInitialised(offset + i, 1);
      else this.poison(offset + i, 1);
    }
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

function setBits(map: Uint8Array, offset: number, bytes: number, value: boolean): void {
  let i = offset;
  const end = offset + bytes;
  const set = (at: number) => {
    if (value) map[at >>> 3]! |= 1 << (at & 7);
    else map[at >>> 3]! &= ~(1 << (at & 7));
  };
  while (i < end && (i & 7) !== 0) set(i++);
  const whole = (end - i) >>> 3;
  if (whole > 0) {
    map.fill(value ? 0xff : 0, i >>> 3, (i >>> 3) + whole);
    i += whole * 8;
  }
  while (i < end) set(i++);
}

/** Each buffer gets 4 GiB of addresses of its own, so an address names its buffer and an overrun cannot reach another. */
const stride = 2 ** 32;
/** Addresses stay below 2^48. */
const maxBuffers = 2 ** 16 - 1;
export const maxBufferBytes = 2 ** 31;

/** Each machine's first buffer lies so many further than that of the machine before it: a tensor of another is mostly nobody's. */
const apart = 4099;
let machines = 0;

export class AddressSpace {
  /** By which of the strides it has. */
  readonly #buffers = new Map<number, SimBuffer>();
  readonly #reusable: number[] = [];
  readonly #first = machines++ * apart;
  /** The same, from the first stride on, for kernels that address memory by numbers: they look there first. */
  readonly table: SimBuffer[] = [];
  /** Of which stride the table's first is. */
  readonly tableBase = 1 + (this.#first % maxBuffers);

  /** Gives the buffer an address. */
  place(buffer: SimBuffer): number {
    const index = this.#buffers.size < maxBuffers ? this.#fresh() : this.#reusable.shift();
    if (index === undefined) {
      throw new HeddleError(
        'HEDDLE_OUT_OF_MEMORY',
        `the simulated machine holds ${maxBuffers} buffers; free some before allocating more`,
      );
    }
    this.#buffers.set(index, buffer);
    // Behind the last stride the first ones follow: those are found by `at`.
    if (index >= this.tableBase && index - this.tableBase <= this.table.length)
      this.table[index - this.tableBase] = buffer;
    return index * stride;
  }

  /** The buffer of a stride. */
  at(index: number): SimBuffer | undefined {
    return this.#buffers.get(index);
  }

  /** None is 0, which is no address. */
  #fresh(): number {
    return 1 + ((this.#first + this.#buffers.size) % maxBuffers);
  }

  /** The address may be given to another buffer, once no fresh one is left. */
  release(address: number): void {
    this.#reusable.push(Math.floor(address / stride));
  }

  /** The buffer that holds `bytes` bytes from `address` on. */
  find(argument: string, address: number, bytes: number): { buffer: SimBuffer; offset: number } {
    const known = Number.isInteger(address);
    const buffer = known ? this.#buffers.get(Math.floor(address / stride)) : undefined;
    const offset = known ? address % stride : 0;
    if (buffer === undefined || buffer.freed || offset + bytes > buffer.bytes) {
      const why =
        buffer === undefined
          ? 'the address of memory that was allocated on a device of this world'
          : buffer.freed
            ? `memory that is still allocated ('${buffer.purpose}' was freed)`
            : `within the ${buffer.bytes} bytes of '${buffer.purpose}' (offset ${offset}, ${bytes} bytes)`;
      throw new ArgumentError(argument, address, why);
    }
    return { buffer, offset };
  }
}
