/** The questions of both kinds of device about a tensor that a kernel's tensorMap is to name. */
import { ArgumentError, requireArray, requireInteger, requireObject, requireThat } from '../base/errors.js';
import type { TensorRank, Tile } from '../lang/index.js';
import type { Tensor } from './device.js';

/** The copy engine counts in pieces of 16 bytes. */
const piece = 16;
const mostExtent = 2 ** 32 - 1;
const mostStride = 2 ** 40 - piece;

/** A tensor with its strides: one for each dimension but the last. */
export interface StridedTensor {
  readonly address: number;
  readonly extents: readonly number[];
  readonly strides: readonly number[];
  /** From its first byte to behind its last, gaps between rows included. */
  readonly bytes: number;
}

export function requireGrid(grid: number, most: number, cluster: number): number {
  requireInteger('grid', grid, 1, most);
  if (grid % cluster === 0) return grid;
  throw new ArgumentError('grid', grid, `a multiple of ${cluster}, the blocks of a cluster`);
}

const requirePieces = (argument: string, value: number): void =>
  requireThat(value % piece === 0, argument, value, `a multiple of ${piece}, which the copy engine needs`);

/** @throws ArgumentError where the copy engine could not move boxes of it. */
export function requireTensor(
  name: string,
  tensor: Tensor,
  { tile, rank }: { readonly tile: Tile; readonly rank: TensorRank },
): StridedTensor {
  requireObject(name, tensor, 'a tensor: { address, extents }');
  const { address, extents, strides: given } = tensor;
  requireInteger(`${name}.address`, address, piece, Number.MAX_SAFE_INTEGER);
  requirePieces(`${name}.address`, address);
  requireArray(`${name}.extents`, extents, `${rank} numbers, the outermost first`, rank);
  for (const [i, extent] of extents.entries()) requireInteger(`${name}.extents[${i}]`, extent, 1, mostExtent);
  const rowBytes = (extents[rank - 1]! * tile.bytes) / (tile.rows * tile.columns);
  const dense = rank === 2 ? [rowBytes] : [extents[1]! * rowBytes, rowBytes];
  const strides = given ?? dense;
  const each = `${rank - 1} numbers of bytes, for each dimension but the last`;
  requireArray(`${name}.strides`, strides, each, rank - 1);
  for (const [i, stride] of strides.entries()) {
    requireInteger(`${name}.strides[${i}]`, stride, 0, mostStride);
    requirePieces(`${name}.strides[${i}]`, stride);
  }
  const long = strides[rank - 2]! >= rowBytes;
  requireThat(long, `${name}.strides`, strides, `at least the ${rowBytes} bytes of a row`);
  const last = strides.reduce((sum, stride, i) => sum + stride * (extents[i]! - 1), 0);
  return { address, extents, strides, bytes: last + rowBytes };
}
