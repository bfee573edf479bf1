/** The questions of both kinds of device about a tensor that a kernel's tensorMap is to name. */
import { ArgumentError, requireInteger, requireObject } from '../base/errors.js';
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

/** So many blocks, in whole clusters. */
export function requireGrid(grid: number, most: number, cluster: number): number {
  requireInteger('grid', grid, 1, most);
  if (grid % cluster === 0) return grid;
  throw new ArgumentError('grid', grid, `a multiple of ${cluster}, the blocks of a cluster`);
}

/** @throws ArgumentError where the copy engine could not move boxes of it. */
export function requireTensor(
  name: string,
  tensor: Tensor,
  { tile, rank }: { readonly tile: Tile; readonly rank: TensorRank },
): StridedTensor {
  requireObject(name, tensor, 'a tensor: { address, extents }');
  const { address, extents, strides: given } = tensor;
  requireInteger(`${name}.address`, address, piece, Number.MAX_SAFE_INTEGER);
  if (address % piece !== 0)
    throw new ArgumentError(
      `${name}.address`,
      address,
      `a multiple of ${piece}, which the copy engine needs`,
    );
  if (!Array.isArray(extents) || extents.length !== rank)
    throw new ArgumentError(`${name}.extents`, extents, `${rank} numbers, the outermost first`);
  for (const [i, extent] of extents.entries()) requireInteger(`${name}.extents[${i}]`, extent, 1, mostExtent);
  const rowBytes = (extents[rank - 1]! * tile.bytes) / (tile.rows * tile.columns);
  const dense = rank === 2 ? [rowBytes] : [extents[1]! * rowBytes, rowBytes];
  const strides = given ?? dense;
  if (!Array.isArray(strides) || strides.length !== rank - 1)
    throw new ArgumentError(
      `${name}.strides`,
      strides,
      `${rank - 1} numbers of bytes, for each dimension but the last`,
    );
  for (const [i, stride] of strides.entries()) {
    requireInteger(`${name}.strides[${i}]`, stride, 0, mostStride);
    if (stride % piece !== 0)
      throw new ArgumentError(
        `${name}.strides[${i}]`,
        stride,
        `a multiple of ${piece}, which the copy engine needs`,
      );
  }
  if (strides[rank - 2]! < rowBytes)
    throw new ArgumentError(`${name}.strides`, strides, `at least the ${rowBytes} bytes of a row`);
  const last = strides.reduce((sum, stride, i) => sum + stride * (extents[i]! - 1), 0);
  return { address, extents, strides, bytes: last + rowBytes };
}
