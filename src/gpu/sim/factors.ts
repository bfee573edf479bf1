/**
 * Matrices in shared memory as tensor cores read them: where each element lies by the descriptor of PTX, and its value.
 *
 * 16 bytes keep their order. Eight rows of one such piece, or of as many pieces as the swizzle has, are an atom. Where a matrix
 * is turned, rows and depth change places: a piece holds several rows of one column.
 */
import { type Swizzle, swizzled } from '../../lang/index.js';
import { bf16ToF32, e4m3ToF32, f16ToF32 } from '../index.js';
import type { ByteAt } from './memory.js';
import type { Stretch } from './posted.js';

export interface Factor extends ByteAt {
  readonly swizzle: Swizzle;
  readonly turned: boolean;
  /** Bytes from an atom to the next: along a row in the first place, and from eight rows to the next in the second. */
  readonly leading: number;
  readonly stride: number;
}

export interface Element {
  readonly bytes: 0.5 | 1 | 2 | 4;
  readonly isInteger?: true;
  read(bits: number): number;
}

const words = new Int32Array(1);
const floats = new Float32Array(words.buffer);

const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6] as const;

/** The types of elements. Tensor cores do not look at the lowest 13 bits of tf32. */
const formats = {
  bf16: { bytes: 2, read: bf16ToF32 },
  f16: { bytes: 2, read: f16ToF32 },
  tf32: {
    bytes: 4,
    read(bits) {
      words[0] = bits & ~0x1fff;
      return floats[0]!;
    },
  },
  e4m3: { bytes: 1, read: e4m3ToF32 },
  e5m2: { bytes: 1, read: (byte) => f16ToF32(byte << 8) },
  e2m1: { bytes: 0.5, read: (bits) => (bits & 8 ? -1 : 1) * e2m1[bits & 7]! },
  s8: { bytes: 1, isInteger: true, read: (byte) => (byte << 24) >> 24 },
  u8: { bytes: 1, isInteger: true, read: (byte) => byte },
} satisfies Readonly<Record<string, Element>>;

export type ElementType = keyof typeof formats;

export const elementTypes: Readonly<Record<ElementType, Element>> = formats;

export const isElementType = (name: string | undefined): name is ElementType =>
  name !== undefined && Object.hasOwn(formats, name);

/** Words whose bits are those of each value of a type of at most 16 bits. */
const tables: { [T in ElementType]?: Int32Array } = {};

function tableOf(type: ElementType): Int32Array {
  const { bytes, read } = elementTypes[type];
  tables[type] ??= new Int32Array(
    Float32Array.from({ length: bytes === 4 ? 0 : 2 ** (8 * bytes) }, (_, bits) => read(bits)).buffer,
  );
  return tables[type];
}

/** By the two bits at the top of a descriptor. */
const swizzles = [0, 128, 64, 32] as const;

/** The matrix of a descriptor, whose upper word has the same form for all that a product reads. */
export function factorOf(buffer: ByteAt['buffer'], low: number, high: number, turned: boolean): Factor {
  if ((high & 0xe0000) !== 0)
    throw new Error(
      'the pattern of the swizzle of a product begins at an atom: a base offset is not simulated',
    );
  return {
    ...{ buffer, offset: (low & 0x3fff) << 4, swizzle: swizzles[high >>> 30]!, turned },
    ...{ leading: ((low >>> 16) & 0x3fff) << 4, stride: (high & 0x3fff) << 4 },
  };
}

/** Where a piece lies: the line of an atom's pieces that it is in, and how many bytes along that line. */
export function pieceAt(
  { offset, swizzle, turned, leading, stride }: Factor,
  line: number,
  along: number,
): number {
  const within = line & 7;
  if (swizzle === 0) {
    const [next, nextLines] = turned ? [stride, leading] : [leading, stride];
    return offset + (along >>> 4) * next + (line >>> 3) * nextLines + 16 * within;
  }
  const atom = turned ? Math.floor(along / swizzle) * leading + (along % swizzle) : along;
  return swizzled(swizzle, offset + atom + (line >>> 3) * stride + swizzle * within);
}

const atomBytes = ({ swizzle }: Factor): number => (swizzle === 0 ? 128 : 8 * swizzle);

/** The number of which the place of its first atom must be a multiple, and that place. */
export const alignmentOf = ({ swizzle }: Factor): number => (swizzle === 0 ? 16 : 8 * swizzle);
export const startOf = ({ offset, swizzle }: Factor): number =>
  swizzle === 0 ? offset : offset - (offset % swizzle);

/** The atoms in which rows lie, `depth` bytes of each. */
export function stretchesOf(
  of: Factor,
  first: number,
  rows: number,
  depth: number,
  type: ElementType,
): Stretch[] {
  const { buffer, swizzle, turned, stride } = of;
  const bytes = atomBytes(of);
  if (!turned && swizzle !== 0 && stride === bytes)
    return [{ buffer, offset: startOf(of) + first * swizzle, bytes: rows * swizzle }];
  const size = elementTypes[type].bytes;
  const [line, lines] = turned ? [0, depth / size] : [first, rows];
  const [from, along] = turned ? [first * size, rows * size] : [0, depth];
  const atoms = new Set<number>();
  for (let i = line; i < line + lines; i += 8)
    for (let at = from; at < from + along; at += 16) {
      const piece = pieceAt(of, i, at);
      atoms.add(swizzle === 0 ? piece : piece - (piece % bytes));
    }
  return [...atoms].map((offset) => ({ buffer, offset, bytes }));
}

/** Rows of a matrix, from `first` on, or their first `depth` bytes, one behind the other, as the words of f32. */
export function readFactor(
  of: Factor,
  first: number,
  rows: number,
  depth: number,
  type: ElementType,
  into: Int32Array,
): void {
  const { i32 } = of.buffer;
  const { bytes } = elementTypes[type];
  const elements = depth / bytes;
  if (of.turned) {
    const each = 16 / bytes;
    for (let k = 0; k < elements; k++)
      for (let row = 0; row < rows; row += each)
        readPiece(i32, pieceAt(of, k, (first + row) * bytes) >>> 2, type, into, row * elements + k, elements);
    return;
  }
  let to = 0;
  for (let row = 0; row < rows; row++)
    for (let at = 0; at < depth; at += 16, to += 16 / bytes)
      readPiece(i32, pieceAt(of, first + row, at) >>> 2, type, into, to, 1);
}

function readPiece(
  i32: Int32Array,
  at: number,
  type: ElementType,
  into: Int32Array,
  to: number,
  step: number,
): void {
  for (let i = 0; i < 4; i++) {
    readWord(i32[at + i]!, type, into, to, step);
    to += (4 / elementTypes[type].bytes) * step;
  }
}

/** The elements of a word. */
export function readWord(word: number, type: ElementType, into: Int32Array, to: number, step: number): void {
  if (type === 'bf16') {
    into[to] = word << 16;
    into[to + step] = word & -65536;
  } else if (type === 'tf32') into[to] = word & ~0x1fff;
  else if (type === 'f16') {
    const table = tableOf(type);
    into[to] = table[word & 65535]!;
    into[to + step] = table[word >>> 16]!;
  } else if (type === 'e2m1') {
    const table = tableOf(type);
    for (let i = 0; i < 8; i++) into[to + i * step] = table[(word >>> (4 * i)) & 15]!;
  } else {
    const table = tableOf(type);
    into[to] = table[word & 255]!;
    into[to + step] = table[(word >>> 8) & 255]!;
    into[to + 2 * step] = table[(word >>> 16) & 255]!;
    into[to + 3 * step] = table[word >>> 24]!;
  }
}
