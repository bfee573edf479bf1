/** Boxes of tensors on their way to tiles in shared memory and back: where each byte lies on either side. */
import { byteSize, swizzled, type Tile } from '../../lang/index.js';
import type { SimBuffer } from './memory.js';

/** The value that a launch passes for a tensorMap. */
export interface SimTensor {
  readonly buffer: SimBuffer;
  /** Of its first element. */
  readonly offset: number;
  readonly extents: readonly number[];
  /** Bytes; for each dimension but the last. */
  readonly strides: readonly number[];
  readonly tile: Tile;
}

/** Bytes that keep their order. */
const piece = 16;

/** One row of a box, as far as it lies in the tensor: the rest reads as zeros, and is not written. */
export interface BoxRow {
  /** Of the row in the tile. */
  readonly inTile: number;
  /** Where the bytes lie in the tensor's buffer, and which of the row's bytes they are. */
  readonly inTensor: number;
  readonly first: number;
  readonly bytes: number;
}

export class Box {
  readonly rowBytes: number;
  readonly #tensor: SimTensor;
  readonly #tile: SimBuffer;
  readonly #tileAt: number;
  /** Where its first element would lie, were there no bounds. */
  readonly #origin: number;
  readonly #firstRow: number;
  /** Bytes of a row that are before the tensor's first, and where its last ends. */
  readonly #before: number;
  readonly #end: number;
  readonly #isInside: boolean;

  constructor(tensor: SimTensor, at: readonly number[], tile: SimBuffer, tileAt: number) {
    const { extents, strides, offset } = tensor;
    const { type, columns } = tensor.tile;
    const [row, column] = at.slice(-2) as [number, number];
    const size = byteSize[type];
    // Hopper stops a kernel that asks for another: measured, PTX does not say so.
    if ((column * size) % piece !== 0)
      throw new Error(
        `a box begins at column ${column}, byte ${column * size} of a row: it must be a multiple of ${piece}`,
      );
    this.#tensor = tensor;
    this.#tile = tile;
    this.#tileAt = tileAt;
    this.rowBytes = columns * size;
    const matrix = at.length === 3 ? at[0]! : 0;
    this.#isInside = at.length < 3 || (matrix >= 0 && matrix < extents[0]!);
    this.#firstRow = row;
    this.#origin =
      offset + (at.length === 3 ? matrix * strides[0]! : 0) + row * strides.at(-1)! + column * size;
    this.#before = Math.min(this.rowBytes, Math.max(0, -column * size));
    this.#end = Math.max(this.#before, Math.min(this.rowBytes, (extents.at(-1)! - column) * size));
  }

  row(index: number): BoxRow {
    const { extents, strides } = this.#tensor;
    const row = this.#firstRow + index;
    const inside = this.#isInside && row >= 0 && row < extents.at(-2)!;
    return {
      inTile: this.#tileAt + index * this.rowBytes,
      inTensor: this.#origin + index * strides.at(-1)! + this.#before,
      first: this.#before,
      bytes: inside ? this.#end - this.#before : 0,
    };
  }

  /** Those of which something lies in the tensor. */
  rows(): readonly BoxRow[] {
    const all = Array.from({ length: this.#tensor.tile.rows }, (_, i) => this.row(i));
    return all.filter(({ bytes }) => bytes > 0);
  }

  /** Brings bytes `from` to `from` + `bytes` of the box, multiples of 16 as if without a swizzle, to the tile. */
  load(from: number, bytes: number): void {
    const { buffer, tile } = this.#tensor;
    for (let at = from; at < from + bytes; at += piece) {
      const row = this.row(Math.floor(at / this.rowBytes));
      const column = at % this.rowBytes;
      const to = this.#tileAt + swizzled(tile.swizzle, at);
      const first = Math.max(0, row.first - column);
      const end = Math.min(piece, row.first + row.bytes - column);
      if (first > 0 || end < piece) this.#tile.u8.fill(0, to, to + piece);
      if (end > first)
        copy(buffer, row.inTensor + column + first - row.first, this.#tile, to + first, end - first);
    }
  }

  /** The same to the tensor. */
  store(from: number, bytes: number): void {
    const { buffer, tile } = this.#tensor;
    for (let at = from; at < from + bytes; at += piece) {
      const row = this.row(Math.floor(at / this.rowBytes));
      const column = at % this.rowBytes;
      const source = this.#tileAt + swizzled(tile.swizzle, at);
      const first = Math.max(0, row.first - column);
      const end = Math.min(piece, row.first + row.bytes - column);
      if (end > first)
        copy(this.#tile, source + first, buffer, row.inTensor + column + first - row.first, end - first);
    }
  }
}

/** Few bytes: a word at a time, where they lie so. */
function copy(from: SimBuffer, fromAt: number, to: SimBuffer, toAt: number, bytes: number): void {
  if (((fromAt | toAt | bytes) & 3) === 0) {
    for (let i = 0; i < bytes >>> 2; i++) to.i32[(toAt >>> 2) + i] = from.i32[(fromAt >>> 2) + i]!;
  } else {
    for (let i = 0; i < bytes; i++) to.u8[toAt + i] = from.u8[fromAt + i]!;
  }
}
