/**
 * Products of tiles (wgmma): each warp makes its 16 of the group's 64 rows. Products of elements are exact; those of a row of
 * the tiles are added in 64 bits and then, rounded to 32, to the sum.
 */
import { swizzled, type Tile } from '../../lang/index.js';
import { e4m3ToF32 } from '../index.js';
import type { SimBuffer } from './memory.js';

/** What a lane brings to a product; the lanes of a warp agree on all but the sums. */
export interface Factors {
  readonly sums: Float32Array;
  readonly a: SimBuffer;
  readonly aAt: number;
  readonly b: SimBuffer;
  readonly bAt: number;
  readonly begin: boolean;
  /** Rows of b. */
  readonly columns: number;
  readonly swizzle: Tile['swizzle'];
  readonly isE4m3: boolean;
  readonly site: number;
}

const rowsOfWarp = 16;
const mostColumns = 256;
/** Elements of the widest row: e4m3, 128 bytes. */
const mostDepth = 128;

const a = new Float32Array(rowsOfWarp * mostDepth);
const b = new Float32Array(mostColumns * mostDepth);
const aWords = new Int32Array(a.buffer);
const bWords = new Int32Array(b.buffer);
const e4m3Words = new Int32Array(Float32Array.from({ length: 256 }, (_, bits) => e4m3ToF32(bits)).buffer);

/** The product of one warp: `lanes` are those of its 32 threads, in their order. */
export function multiplyTiles(lanes: readonly Factors[], warp: number): void {
  const { swizzle, isE4m3, columns, begin, ...of } = lanes[0]!;
  const depth = isE4m3 ? swizzle : swizzle / 2;
  open(of.a, of.aAt, { first: rowsOfWarp * (warp & 3), rows: rowsOfWarp, swizzle, isE4m3 }, aWords);
  open(of.b, of.bAt, { first: 0, rows: columns, swizzle, isE4m3 }, bWords);
  for (let pair = 0; pair < 8; pair++) {
    // Of each lane are columns 2c and 2c + 1 of every eight, in two rows eight apart.
    const [upper, lower] = [pair * depth, (pair + 8) * depth];
    for (let column = 0; column < columns; column += 2) {
      const [left, right] = [column * depth, (column + 1) * depth];
      let [s00, s01, s10, s11] = [0, 0, 0, 0];
      for (let k = 0; k < depth; k++) {
        const [x, y] = [a[upper + k]!, a[lower + k]!];
        const [p, q] = [b[left + k]!, b[right + k]!];
        s00 += x * p;
        s01 += x * q;
        s10 += y * p;
        s11 += y * q;
      }
      const { sums } = lanes[4 * pair + ((column & 7) >> 1)]!;
      const at = 4 * (column >> 3);
      if (begin) {
        sums[at] = s00;
        sums[at + 1] = s01;
        sums[at + 2] = s10;
        sums[at + 3] = s11;
      } else {
        sums[at]! += s00;
        sums[at + 1]! += s01;
        sums[at + 2]! += s10;
        sums[at + 3]! += s11;
      }
    }
  }
}

interface Rows {
  readonly first: number;
  readonly rows: number;
  readonly swizzle: Tile['swizzle'];
  readonly isE4m3: boolean;
}

/** Rows of a tile as f32, one behind the other, as the words that they are. */
function open(from: SimBuffer, at: number, { first, rows, swizzle, isE4m3 }: Rows, into: Int32Array): void {
  const { i32 } = from;
  const end = (first + rows) * swizzle;
  let to = 0;
  for (let piece = first * swizzle; piece < end; piece += 16) {
    const source = (at + swizzled(swizzle, piece)) >>> 2;
    for (let i = 0; i < 4; i++) {
      const word = i32[source + i]!;
      if (isE4m3) {
        into[to] = e4m3Words[word & 255]!;
        into[to + 1] = e4m3Words[(word >>> 8) & 255]!;
        into[to + 2] = e4m3Words[(word >>> 16) & 255]!;
        into[to + 3] = e4m3Words[word >>> 24]!;
        to += 4;
      } else {
        into[to] = word << 16;
        into[to + 1] = word & -65536;
        to += 2;
      }
    }
  }
}
