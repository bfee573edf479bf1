/** Tensors as the copy engine (TMA) reads them: the 128 bytes that the driver makes of an address, extents and strides. */
import type { Tile, TileName } from '../../lang/index.js';
import type { StridedTensor } from '../index.js';
import { check, type Driver } from './driver.js';

/** CUtensorMapDataType; what has no type of its own travels as bytes. */
export const tensorTypes: Readonly<Record<TileName, number>> = {
  ...{ u8: 0, e4m3: 0, u16: 1, u32: 2, i32: 3, u64: 4, f16: 6, f32: 7, bf16: 9 },
};
/** CUtensorMapSwizzle. */
export const swizzles: Readonly<Record<Tile['swizzle'], number>> = { 0: 0, 32: 1, 64: 2, 128: 3 };
/** CU_TENSOR_MAP_L2_PROMOTION_L2_256B: neighbouring tiles are wanted next. */
const promotion = 3;
const [notInterleaved, zerosOutside] = [0, 0];

// Byte offsets of the lists that the driver reads, in its memory for results: behind the map (128 bytes), first lists
// of 64-bit, then of 32-bit numbers.
const mapBytes = 128;
const at = { extents: mapBytes, strides: mapBytes + 24, box: mapBytes + 40, steps: mapBytes + 52 };

/** A copy of the map. */
export function encodeTensorMap(driver: Driver, tensor: StridedTensor, tile: Tile, name: string): Uint8Array {
  const { out, cuTensorMapEncodeTiled } = driver;
  const { address, extents, strides } = tensor;
  const rank = extents.length;
  const box = rank === 2 ? [tile.rows, tile.columns] : [1, tile.rows, tile.columns];
  // The driver counts from the innermost dimension on.
  extents.toReversed().forEach((extent, i) => {
    out.u64[at.extents / 8 + i] = BigInt(extent);
  });
  strides.toReversed().forEach((stride, i) => {
    out.u64[at.strides / 8 + i] = BigInt(stride);
  });
  box.reverse().forEach((extent, i) => {
    out.i32[at.box / 4 + i] = extent;
    out.i32[at.steps / 4 + i] = 1;
  });
  const made = cuTensorMapEncodeTiled(
    ...[out.address, tensorTypes[tile.type], rank, address],
    ...[out.address + at.extents, out.address + at.strides, out.address + at.box, out.address + at.steps],
    ...[notInterleaved, swizzles[tile.swizzle], promotion, zerosOutside],
  );
  check(made, 'cuTensorMapEncodeTiled', `describing the tensor ${name}`);
  return out.bytes.slice(0, mapBytes);
}
