/**
 * Blackwell's tensor memory (tcgen05): 128 lanes of 512 columns of 32 bits for each block, and the products that are added up there.
 * Data change at once; what is ordered, the detector is told: products complete where their commit arrives, loads and stores where
 * they are awaited.
 */
import { e4m3ToF32 } from '../index.js';
import type { Copies } from './copies.js';
import {
  alignmentOf,
  type ElementType,
  elementTypes,
  type Factor,
  pieceAt,
  readFactor,
  readWord,
  startOf,
  stretchesOf,
} from './factors.js';
import type { ByteAt, SimBuffer } from './memory.js';

export const tensorLanes = 128;
const allColumns = 512;

export class TensorMemory {
  readonly buffer: SimBuffer;
  /** Which columns are taken, by the first of each allocation. */
  readonly #taken = new Map<number, number>();
  #relinquished = false;

  constructor(buffer: SimBuffer) {
    this.buffer = buffer;
  }

  /** The first of so many free columns, or why there are none. */
  allocate(columns: number): number | string {
    if (columns < 32 || columns > allColumns || (columns & (columns - 1)) !== 0)
      return `tensor memory is allocated by 32, 64, 128, 256 or 512 columns, not by ${columns}`;
    if (this.#relinquished) return 'this block has given up the right to allocate tensor memory';
    let first = 0;
    for (const [start, count] of [...this.#taken].sort(([a], [b]) => a - b)) {
      if (first + columns <= start) break;
      first = start + count;
    }
    if (first + columns > allColumns)
      return `of ${allColumns} columns of tensor memory no ${columns} are free: this waits for ever`;
    this.#taken.set(first, columns);
    // No result can depend on what nobody has written.
    for (let lane = 0; lane < tensorLanes; lane++)
      this.buffer.i32.fill(0x7fc00000, lane * allColumns + first, lane * allColumns + first + columns);
    return first;
  }

  free(first: number, columns: number): boolean {
    return this.#taken.get(first) === columns && this.#taken.delete(first);
  }

  relinquish(): void {
    this.#relinquished = true;
  }

  get unfreed(): number {
    return this.#taken.size;
  }

  /** The place of a column in a lane, of an address: the lane above 16 bits of the column. Null where nothing is allocated. */
  at(address: number, lane: number, columns: number): ByteAt | null {
    const [row, column] = [(address >>> 16) + lane, address & 0xffff];
    const inside = [...this.#taken].some(
      ([first, count]) => column >= first && column + columns <= first + count,
    );
    if (!inside || row >= tensorLanes) return null;
    return { buffer: this.buffer, offset: 4 * (row * allColumns + column) };
  }
}

export const tensorMemoryBytes = 4 * tensorLanes * allColumns;

interface ScalesForm {
  /** Which byte of its word each factor's first one of a row is. */
  readonly bytes: readonly [number, number];
  read(byte: number): number;
}

const e8m0 = (byte: number): number => (byte === 255 ? Number.NaN : 2 ** (byte - 127));

/** What a product is of, as its instruction descriptor says. */
interface Form {
  readonly rows: number;
  readonly columns: number;
  readonly a: ElementType;
  readonly b: ElementType;
  readonly turnedA: boolean;
  readonly turnedB: boolean;
  readonly sign: number;
  readonly scales: ScalesForm | null;
}

const types: Readonly<Record<string, readonly (ElementType | undefined)[]>> = {
  f16: ['f16', 'bf16'],
  tf32: [undefined, undefined, 'tf32'],
  f8f6f4: ['e4m3', 'e5m2'],
  mxf8f6f4: ['e4m3', 'e5m2'],
  mxf4: [undefined, 'e2m1'],
  mxf4nvf4: [undefined, 'e2m1'],
  i8: ['u8', 's8'],
};

/** @throws Error where the form is not simulated. */
export function formOf(kind: string, bits: number): Form {
  const of = (shift: number): number => (bits >>> shift) & 7;
  const [a, b] = [types[kind]?.[of(7)], types[kind]?.[of(10)]];
  const isInteger = kind === 'i8';
  const isScaled = kind.startsWith('mx');
  const isPower = ((bits >>> 23) & 1) === 1;
  const isKnown = isScaled ? isPower || kind === 'mxf4nvf4' : ((bits >>> 4) & 3) === (isInteger ? 2 : 1);
  if (
    a === undefined ||
    b === undefined ||
    (bits & 4) !== 0 ||
    (a === 'e2m1' && (bits & 0x18000) !== 0) ||
    !isKnown
  )
    throw new Error(
      'a product in tensor memory is of dense f16, bf16, tf32, e4m3 or e5m2 into f32, of s8 and u8 into s32, or of e4m3, e5m2 and e2m1 with scales of e8m0 (those of nvfp4 of e4m3): others are not simulated',
    );
  const signs = (bits >>> 13) & 3;
  return {
    ...{ a, b, rows: ((bits >>> 24) & 31) << 4, columns: ((bits >>> 17) & 63) << 3 },
    ...{ turnedA: ((bits >>> 15) & 1) === 1, turnedB: ((bits >>> 16) & 1) === 1 },
    sign: signs === 1 || signs === 2 ? -1 : 1,
    scales: isScaled
      ? { bytes: [(bits >>> 29) & 3, (bits >>> 4) & 3], read: isPower ? e8m0 : e4m3ToF32 }
      : null,
  };
}

const depthBytes = 32;
const mostColumns = 256;
/** Elements of a row, and scales. */
const [mostDepth, mostScales] = [64, 4];
const a = new Float32Array(tensorLanes * mostDepth);
const b = new Float32Array(mostColumns * mostDepth);
const aScales = new Float64Array(tensorLanes * mostScales);
const bScales = new Float64Array(mostColumns * mostScales);
const aWords = new Int32Array(a.buffer);
const bWords = new Int32Array(b.buffer);

const misplaced = 'a factor must begin where the pattern of its swizzle does';

/** What one block of a product has: its rows of a, the columns of b that it keeps, and its tensor memory. */
export interface Part {
  readonly a: Factor | number;
  readonly b: Factor;
  readonly memory: TensorMemory;
}

interface Product {
  readonly form: Form;
  /** The address of the sums. */
  readonly to: number;
  readonly adds: boolean;
  readonly site: number;
  /** The places of the scales of both factors, and how many a row has; null of a form without scales. */
  readonly scales: readonly [a: number, b: number, each: number] | null;
}

/** Rows of shared memory go to tensor memory: `rows` of so many bytes, and once more for all lanes. False where that is not allocated. */
export function copyToTensorMemory(
  from: Factor,
  to: { readonly memory: TensorMemory; readonly address: number },
  [rows, bytes]: readonly [number, number],
  site: number,
  by: Copies,
): boolean {
  for (const place of stretchesOf(from, 0, rows, bytes, 'u8'))
    by.touch('read', place, place.bytes, site, false);
  for (let lane = 0; lane < tensorLanes; lane++) {
    const place = to.memory.at(to.address, lane, bytes / 4);
    if (place === null) return false;
    by.touch('write', place, bytes, site, true);
    for (let along = 0; along < bytes; along += 16) {
      const piece = pieceAt(from, lane % rows, along) >>> 2;
      place.buffer.i32.set(from.buffer.i32.subarray(piece, piece + 4), (place.offset + along) >>> 2);
    }
  }
  return true;
}

/** The scales of so many rows: 32 rows in a column, those of each the bytes of its word from `byte` on. Null where that is not allocated. */
function bringScales(
  memory: TensorMemory,
  [address, rows, each]: readonly [number, number, number],
  byte: number,
  read: ScalesForm['read'],
  into: Float64Array,
  touch: (place: ByteAt, bytes: number) => void,
): Float64Array | null {
  const columns = Math.ceil(rows / 32);
  for (let lane = 0; lane < 32; lane++) {
    const place = memory.at(address, lane, columns);
    if (place === null) return null;
    touch(place, 4 * columns);
    for (let row = lane; row < rows; row += 32)
      for (let i = 0; i < each; i++)
        into[row * each + i] = read(memory.buffer.u8[place.offset + (row >> 5) * 4 + byte + i]!);
  }
  return into;
}

/** sums = a · bᵀ, or what they are and that; of one block, or of a pair, each of which has half of b. Says what is wrong, or null. */
export function multiplyInTensorMemory(
  parts: readonly Part[],
  { form, to, adds, site, scales }: Product,
  by: Copies,
): string | null {
  const { rows, columns, sign } = form;
  const size = elementTypes[form.a].bytes;
  const depth = depthBytes / size;
  if (rows !== tensorLanes * parts.length)
    return `a product of ${rows} rows is not simulated: ${tensorLanes} for each block`;
  const half = columns / parts.length;
  const each = scales?.[2] ?? 1;
  /** Reads rows of a factor in shared memory. False where it does not begin where it must. */
  const bring = (of: Factor, rows: number, type: ElementType, into: Int32Array): boolean => {
    if (startOf(of) % alignmentOf(of) !== 0) return false;
    for (const place of stretchesOf(of, 0, rows, depthBytes, type))
      by.touch('read', place, place.bytes, site, false);
    readFactor(of, 0, rows, depthBytes, type, into);
    return true;
  };
  for (const [i, { b: of }] of parts.entries()) {
    if (!bring(of, half, form.b, bWords.subarray(i * half * depth))) return misplaced;
  }
  for (const { a: of, memory } of parts) {
    if (typeof of === 'number') {
      for (let row = 0; row < tensorLanes; row++) {
        const place = memory.at(of, row, depthBytes / 4);
        if (place === null) return 'a factor lies in tensor memory that is not allocated';
        by.touch('read', place, depthBytes, site, true);
        for (let i = 0; i < depthBytes / 4; i++)
          readWord(
            memory.buffer.i32[(place.offset >> 2) + i]!,
            form.a,
            aWords,
            row * depth + (4 / size) * i,
            1,
          );
      }
    } else if (!bring(of, tensorLanes, form.a, aWords)) return misplaced;
    let scaled: readonly Float64Array[] | null = null;
    if (form.scales !== null && scales !== null) {
      const { bytes, read } = form.scales;
      const touch = (place: ByteAt, length: number): void => by.touch('read', place, length, site, true);
      const [ofA, ofB] = ([0, 1] as const).map((i) => {
        const of = [scales[i], [tensorLanes, columns][i]!, each] as const;
        return bringScales(memory, of, bytes[i], read, [aScales, bScales][i]!, touch);
      });
      if (!ofA || !ofB) return 'scales lie in tensor memory that is not allocated';
      scaled = [ofA, ofB];
    }
    for (let row = 0; row < tensorLanes; row++) {
      const place = memory.at(to, row, columns);
      if (place === null) return 'the sums lie in tensor memory that is not allocated';
      if (adds) by.touch('read', place, 4 * columns, site, true);
      by.touch('write', place, 4 * columns, site, true);
      const sums = elementTypes[form.a].isInteger ? memory.buffer.i32 : memory.buffer.f32;
      const first = place.offset >> 2;
      for (let column = 0; column < columns; column++) {
        let sum = 0;
        for (let block = 0; block < each; block++) {
          let partial = 0;
          for (let k = (block * depth) / each; k < ((block + 1) * depth) / each; k++)
            partial += a[row * depth + k]! * b[column * depth + k]!;
          if (scaled !== null)
            partial *= scaled[0]![row * each + block]! * scaled[1]![column * each + block]!;
          sum += partial;
        }
        sums[first + column] = (adds ? sums[first + column]! : 0) + sign * sum;
      }
    }
  }
  return null;
}
