/** Shared memory of a block: where its arrays lie, and how much there may be. This is the one place that knows. */
import { HeddleError } from '../base/errors.js';
import type { SharedArray, Variable } from './ir.js';
import { byteSize, type IrType, sectionAlignment } from './types.js';

/** The size that every GPU gives a block; more of it must be asked for at the launch. */
const sharedByDefault = 48 * 1024;
/** The size that the largest GPUs give a block that asks: sm_90 and sm_100. A device says what it has. */
export const mostShared = 227 * 1024;

/**
 * The alignment of dynamic shared memory: that of a tile with the widest swizzle. All kernels use one number, since a
 * program declares this memory once.
 */
export const dynamicAlignment = 1024;

export interface SharedRange {
  readonly variable: Variable;
  readonly offset: number;
  readonly alignment: number;
  readonly elementBytes: number;
  readonly length: number;
}

/** The alignment of an array: vectors have lines of their own, tiles lie as the copy engine and the tensor cores take them. */
function sharedAlignment(type: IrType & { readonly kind: 'pointer' }): number {
  if (type.tile !== undefined) return type.tile.alignment;
  return type.to === 'v16' ? sectionAlignment : byteSize[type.to];
}

/** Arrays in the order of their declarations. */
export function sharedLayout(arrays: readonly SharedArray[]): {
  readonly ranges: readonly SharedRange[];
  readonly bytes: number;
} {
  let bytes = 0;
  const ranges = arrays.map(({ variable, length }) => {
    const { type, name } = variable;
    if (type.kind !== 'pointer')
      throw new HeddleError('HEDDLE_PRINT', `the shared array ${name} is no pointer`);
    const elementBytes = byteSize[type.to];
    const alignment = sharedAlignment(type);
    const offset = Math.ceil(bytes / alignment) * alignment;
    bytes = offset + elementBytes * length;
    return { variable, offset, alignment, elementBytes, length };
  });
  return { ranges, bytes };
}

/** Bytes that a launch must ask for: all or nothing, for a kernel has its arrays in one piece or each by itself. */
export function dynamicSharedBytes(arrays: readonly SharedArray[]): number {
  const { bytes } = sharedLayout(arrays);
  return bytes > sharedByDefault ? bytes : 0;
}
