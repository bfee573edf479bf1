/** Tensor maps in memory, which kernels copy and change (`tensormap.replace`): 128 bytes, in an order of the simulated machine's own. */
import { type Swizzle, type TileName, tile } from '../../lang/index.js';
import type { SimTensor } from './boxes.js';
import { type AddressSpace, type ByteAt, stride } from './memory.js';

export const tensorMapBytes = 128;

interface Field {
  readonly at: number;
  readonly bytes: 1 | 4 | 8;
  /** How many there are, one for each dimension. */
  readonly count?: number;
}

/** By their names in PTX. Dimensions are counted from the innermost. */
const fields = {
  global_address: { at: 0, bytes: 8 },
  rank: { at: 8, bytes: 1 },
  elemtype: { at: 9, bytes: 1 },
  interleave_layout: { at: 10, bytes: 1 },
  swizzle_mode: { at: 11, bytes: 1 },
  fill_mode: { at: 12, bytes: 1 },
  global_dim: { at: 16, bytes: 4, count: 5 },
  global_stride: { at: 40, bytes: 8, count: 4 },
  box_dim: { at: 72, bytes: 4, count: 5 },
  element_stride: { at: 92, bytes: 4, count: 5 },
} satisfies Readonly<Record<string, Field>>;

export type MapField = keyof typeof fields;
export const mapFields: Readonly<Record<MapField, Field>> = fields;
export const mapFieldNames = Object.keys(fields) as MapField[];

/** By their numbers in PTX; of signed and unsigned elements the bytes alone matter. */
const types: readonly TileName[] = [
  ...(['u8', 'u16', 'u32', 'i32', 'u64', 'u64', 'f16', 'f32', 'f32', 'u64'] as const),
  ...(['bf16', 'f32', 'f32'] as const),
];
const swizzles: readonly Swizzle[] = [0, 32, 64, 128];

/** Writes a field, of the dimension that `n` says. */
export function replaceInMap(
  { buffer, offset }: ByteAt,
  field: MapField,
  n: number,
  low: number,
  high: number,
): void {
  const { at, bytes } = mapFields[field];
  const place = offset + at + n * bytes;
  if (bytes === 1) buffer.u8[place] = low;
  else buffer.i32[place >>> 2] = low;
  if (bytes === 8) buffer.i32[(place >>> 2) + 1] = high;
}

type Form = Pick<SimTensor, 'extents' | 'strides' | 'tile'>;

export function mapOf({ extents, strides, tile }: Form, address: number): Uint8Array {
  const bytes = new Uint8Array(tensorMapBytes);
  const view = new DataView(bytes.buffer);
  const put = (field: MapField, values: readonly number[]): void => {
    const { at, bytes } = mapFields[field];
    for (const [i, value] of values.entries())
      if (bytes === 1) view.setUint8(at, value);
      else if (bytes === 4) view.setUint32(at + 4 * i, value, true);
      else view.setBigUint64(at + 8 * i, BigInt(value), true);
  };
  put('global_address', [address]);
  put('rank', [extents.length - 1]);
  put('elemtype', [types.indexOf(tile.type === 'e4m3' ? 'u8' : tile.type)]);
  put('swizzle_mode', [swizzles.indexOf(tile.swizzle)]);
  put('global_dim', extents.toReversed());
  put('global_stride', strides.toReversed());
  put('box_dim', [tile.columns, tile.rows, 1]);
  put('element_stride', [1, 1, 1]);
  return bytes;
}

export function tensorAt(map: ByteAt, addresses: AddressSpace): SimTensor {
  const { buffer, offset } = map;
  const read = (field: MapField, n = 0): number => {
    const { at, bytes } = mapFields[field];
    const place = offset + at + n * bytes;
    if (bytes === 1) return buffer.u8[place]!;
    const low = buffer.i32[place >>> 2]! >>> 0;
    return bytes === 4 ? low : low + 2 ** 32 * (buffer.i32[(place >>> 2) + 1]! >>> 0);
  };
  const rank = read('rank') + 1;
  const all = (field: MapField, count: number): number[] =>
    Array.from({ length: count }, (_, i) => read(field, i));
  const [columns = 0, rows = 0, deep = 1] = all('box_dim', rank);
  const [type, swizzle] = [types[read('elemtype')], swizzles[read('swizzle_mode')]];
  const address = read('global_address');
  const to = addresses.at(Math.floor(address / stride));
  const plain = read('interleave_layout') === 0 && read('fill_mode') === 0;
  const each = all('element_stride', rank).every((one) => one === 1);
  const wrong = (why: string) => new Error(`the tensor map at ${buffer.describe(offset)} ${why}`);
  if (to === undefined) throw wrong(`is of address 0x${address.toString(16)}, where no memory is`);
  if (offset % 64 !== 0) throw wrong('must lie at a multiple of 64 bytes');
  if (type === undefined || swizzle === undefined || rank < 2 || rank > 3 || deep !== 1 || !plain || !each)
    throw wrong(
      'has a form that is not simulated: 2 or 3 dimensions, boxes of one matrix, zeros outside, nothing interleaved',
    );
  return {
    ...{ buffer: to, offset: address % stride, map },
    extents: all('global_dim', rank).reverse(),
    strides: all('global_stride', rank - 1).reverse(),
    tile: tile(type, [rows, columns], { swizzle }),
  };
}
