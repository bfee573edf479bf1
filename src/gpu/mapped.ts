import { ArgumentError } from '../base/errors.js';
import type { Fill, HostView } from './device.js';

/** A view of real memory, on any thread that knows where it lies. */
export class NativeView implements HostView {
  readonly #words: Uint32Array;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >>> 2);
  }

  load(offset: number): number {
    return Atomics.load(this.#words, wordAt(offset, this.#bytes.length));
  }

  store(offset: number, value: number): void {
    const at = wordAt(offset, this.#bytes.length);
    requireWord(value);
    Atomics.store(this.#words, at, value);
  }

  read(offset: number, into: Uint8Array): void {
    requireBytes(offset, into, this.#bytes.length);
    for (let i = 0; i < into.length; i++) into[i] = this.#bytes[offset + i]!;
  }

  write(offset: number, from: Uint8Array): void {
    requireBytes(offset, from, this.#bytes.length);
    this.#bytes.set(from, offset);
  }
}

/** The index of the word at a byte offset of `room` bytes. */
export function wordAt(offset: number, room: number): number {
  // The comparison of the usual case; a refusal looks closer.
  if (typeof offset === 'number' && (offset & 3) === 0 && offset >= 0 && offset + 4 <= room)
    return offset >>> 2;
  throw new ArgumentError('offset', offset, `a multiple of 4 from 0 to ${room - 4}`);
}

/** Refuses what is no u32 at all: Node.js would take its bits, or throw an error of its own. */
export function requireWord(value: number): void {
  if (typeof value !== 'number') throw new ArgumentError('value', value, 'a u32');
}

/** Refuses a piece of `room` bytes that is no Uint8Array, or does not fit. */
export function requireBytes(offset: number, piece: Uint8Array, room: number): void {
  if (!(piece instanceof Uint8Array)) throw new ArgumentError('bytes', piece, 'a Uint8Array');
  requireWithin(offset, piece.length, room);
}

export function requireWithin(offset: number, bytes: number, room: number): void {
  if (Number.isInteger(offset) && offset >= 0 && offset + bytes <= room) return;
  throw new ArgumentError('offset', offset, `from 0 to ${room - bytes}, for ${bytes} of ${room} bytes`);
}

export function fillAll(raw: Uint8Array, fills: readonly Fill[]): void {
  for (const { offset, bytes, value } of fills) raw.fill(value, offset, offset + bytes);
}
