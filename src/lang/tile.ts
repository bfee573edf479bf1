/**
 * Tiles: how a matrix lies in shared memory so that the copy engine (TMA) can bring it and the tensor cores (wgmma) can read it.
 *
 * Rows stand one behind the other. Under a swizzle the 16-byte pieces of a row change places, by a pattern that repeats after 8
 * rows: piece p of row r lies where piece p ^ f(r) would. Eight rows of one column then lie in different banks.
 */
import { requireArray, requireInteger, requireObject, requireThat } from '../base/errors.js';
import { byteSize, type Swizzle, type Tile, type TileName } from './types.js';

/** Most elements of a box that the copy engine brings at once, in each dimension. */
const mostExtent = 256;
/** Bytes that keep their order under every swizzle. */
const pieceBytes = 16;
/** The copy engine writes no tile that begins in between. */
const leastAlignment = 128;
const swizzles: readonly Swizzle[] = [0, 32, 64, 128];
const tileNames: readonly string[] = Object.keys(byteSize).filter((name) => name !== 'v16');

/**
 * A matrix of `rows` × `columns` elements in shared memory. With a swizzle of n bytes a row has exactly n bytes: a wider matrix
 * is several tiles side by side.
 */
export function tile<const T extends TileName>(
  type: T,
  shape: readonly [rows: number, columns: number],
  options: { readonly swizzle: Swizzle },
): Tile<T> {
  requireThat(tileNames.includes(type), 'type', type, `one of ${tileNames.join(', ')}`);
  requireArray('shape', shape, '[rows, columns]', 2);
  requireObject('options', options, '{ swizzle }');
  const { swizzle } = options;
  requireThat(swizzles.includes(swizzle), 'swizzle', swizzle, `one of ${swizzles.join(', ')} bytes`);
  const rows = requireInteger('rows', shape[0], 1, mostExtent);
  const columns = requireInteger('columns', shape[1], 1, mostExtent);
  const rowBytes = columns * byteSize[type];
  const bytes = rows * rowBytes;
  if (swizzle !== 0) {
    const fits = swizzle / byteSize[type];
    const why = `under a swizzle of ${swizzle} bytes a row of ${type} has ${fits} elements`;
    requireThat(columns === fits, 'columns', columns, `${fits}: ${why}`);
    requireThat(
      rows % 8 === 0,
      'rows',
      rows,
      'a multiple of 8, after which the pattern of a swizzle repeats',
    );
  } else {
    const whole = 'whole multiples of 16 bytes, which the copy engine moves';
    requireThat(rowBytes % pieceBytes === 0, 'columns', columns, whole);
    const all = `of a multiple of ${leastAlignment} bytes in all (${rows} × ${columns} ${type} are ${bytes})`;
    requireThat(bytes % leastAlignment === 0, 'shape', shape, all);
  }
  const alignment = Math.max(leastAlignment, 8 * swizzle);
  return { heddle: 'tile', type, rows, columns, swizzle, bytes, alignment };
}

export function requireTile(of: Tile): void {
  const isWhole = isTile(of) && Number.isInteger(of.rows) && Number.isInteger(of.columns);
  requireThat(isWhole, 'tile', of, 'what tile() gives');
}

export const isTile = (of: unknown): of is Tile =>
  typeof of === 'object' && of !== null && 'heddle' in of && of.heddle === 'tile';

/** The place of element (row, column): bytes from the start of its tile. */
export function offsetInTile(of: Tile, row: number, column: number): number {
  requireTile(of);
  requireInteger('row', row, 0, of.rows - 1);
  requireInteger('column', column, 0, of.columns - 1);
  const size = byteSize[of.type];
  return swizzled(of.swizzle, (row * of.columns + column) * size);
}

/** The offset at which a swizzled tile keeps the byte that an unswizzled one has at `offset`. */
export const swizzled = (swizzle: Swizzle, offset: number): number =>
  swizzle === 0 ? offset : offset ^ (((offset >>> 7) & (swizzle / pieceBytes - 1)) << 4);

/** The pattern of a swizzle, in elements: `index ^ ((index >> lines & mask) << piece)`. Null where nothing changes places. */
export function swizzleOfIndex({ type, swizzle }: Tile): {
  readonly lines: number;
  readonly mask: number;
  readonly piece: number;
} | null {
  if (swizzle === 0) return null;
  const size = Math.log2(byteSize[type]);
  return { lines: 7 - size, mask: swizzle / pieceBytes - 1, piece: 4 - size };
}

/** `bf16 128×64, swizzle 128` */
export const showTile = ({ type, rows, columns, swizzle }: Tile): string =>
  `${type} ${rows}×${columns}${swizzle === 0 ? '' : `, swizzle ${swizzle}`}`;

export function rowsOf(of: Tile, rows: number): Tile {
  return { ...of, rows, bytes: rows * of.columns * byteSize[of.type] };
}
