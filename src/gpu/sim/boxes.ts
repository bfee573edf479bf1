/** Boxes of tensors on their way to tiles in shared memory and back: where each byte lies on either side. */
import { byteSize, swizzled, type Tile } from '../../lang/index.js';
import type { ByteAt, SimBuffer } from './memory.js';
import type { Stretch } from './posted.js';

/** The value that a launch passes for a tensorMap: the place of its first element, and its form. */
export interface SimTensor extends ByteAt {
  readonly extents: readonly number[];
  /** Bytes; for each dimension but the last. */
  readonly strides: readonly number[];
  readonly tile: Tile;
  /** Where its map lies, if kernels may have changed it. */
  readonly map?: ByteAt;
}

/** Bytes that keep their order. */
const piece = 16;

/** A box at a place of a tensor: what lies outside of that reads as zeros, and is not written. */
export function boxOf(tensor: SimTensor, at: readonly number[], tile: ByteAt) {
  const { buffer, extents, strides } = tensor;
  const { type, columns, rows: rowCount, swizzle } = tensor.tile;
  const [firstRow, firstColumn] = at.slice(-2) as [number, number];
  const size = byteSize[type];
  const start = firstColumn * size;
  // Hopper stops a kernel that asks for another: measured, PTX does not say so.
  if (start % piece !== 0)
    throw new Error(
      `a box begins at column ${firstColumn}, byte ${start} of a row: it must be a multiple of ${piece}`,
    );
  const rowBytes = columns * size;
  const matrix = at.length === 3 ? at[0]! : 0;
  const isInside = at.length < 3 || (matrix >= 0 && matrix < extents[0]!);
  const rowStride = strides.at(-1)!;
  /** Where its first element would lie, were there no bounds. */
  const origin = tensor.offset + (at.length === 3 ? matrix * strides[0]! : 0) + firstRow * rowStride + start;
  /** Bytes of a row that are before the tensor's first, and where its last ends. */
  const before = Math.min(rowBytes, Math.max(0, -start));
  const ends = Math.max(before, Math.min(rowBytes, extents.at(-1)! * size - start));

  /** Where the bytes of a row lie, and how many they are; those from `before` on. */
  function rowAt(index: number): Stretch {
    const row = firstRow + index;
    const inside = isInside && row >= 0 && row < extents.at(-2)!;
    return { buffer, offset: origin + index * rowStride + before, bytes: inside ? ends - before : 0 };
  }

  return {
    /** Rows of the box of which something lies in the tensor. */
    rows: () => Array.from({ length: rowCount }, (_, i) => rowAt(i)).filter(({ bytes }) => bytes > 0),

    /** Moves bytes `from` to `from` + `bytes` of it, multiples of 16 as if without a swizzle: to the tile, or to the tensor. */
    move(toTile: boolean, from: number, bytes: number): void {
      for (let at = from; at < from + bytes; at += piece) {
        const row = rowAt(Math.floor(at / rowBytes));
        const column = at % rowBytes;
        const inTile = tile.offset + swizzled(swizzle, at);
        const first = Math.max(0, before - column);
        const end = Math.min(piece, before + row.bytes - column);
        if (toTile && (first > 0 || end < piece)) tile.buffer.u8.fill(0, inTile, inTile + piece);
        if (end <= first) continue;
        const inTensor = row.offset + column + first - before;
        if (toTile) copy(buffer, inTensor, tile.buffer, inTile + first, end - first);
        else copy(tile.buffer, inTile + first, buffer, inTensor, end - first);
      }
    },
  };
}

/** Few bytes: a word at a time, where they lie so. */
function copy(from: SimBuffer, fromAt: number, to: SimBuffer, toAt: number, bytes: number): void {
  if (((fromAt | toAt | bytes) & 3) === 0) {
    for (let i = 0; i < bytes >>> 2; i++) to.i32[(toAt >>> 2) + i] = from.i32[(fromAt >>> 2) + i]!;
  } else {
    for (let i = 0; i < bytes; i++) to.u8[toAt + i] = from.u8[fromAt + i]!;
  }
}
