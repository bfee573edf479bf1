/**
 * Matrices that a warp holds together, and multiplies. Which elements lie in which lane is as PTX documents it for
 * `ldmatrix` and for `mma.m16n8k16` with bf16: a lane is row `lane / 4` and pair of columns `lane % 4` of each 8×8 matrix.
 */
import type { Pointer, v16 } from '../language.js';
import { count, operation, pointerIn, value } from './operation.js';
import { calls } from './parts.js';

/** Words that a thread brings to an operation on matrices: four of a, two of b, four of the sum. */
export const matrixWords = 10;

const lanes = 32;
const rowsOfLanes = new Int32Array(4 * lanes);
const halves = new Uint16Array(rowsOfLanes.buffer);
const [a, b] = [new Float32Array(16 * 16), new Float32Array(8 * 16)];
const word = new Int32Array(1);
const float = new Float32Array(word.buffer);

const multiply = `template <int half>
DEVICE v16 mma(v16 a, v16 b, v16 sum) {
  f32 d0 = bits_f32(sum.x), d1 = bits_f32(sum.y), d2 = bits_f32(sum.z), d3 = bits_f32(sum.w);
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(half == 0 ? b.x : b.z), "r"(half == 0 ? b.y : b.w));
  return v16{bits_u32(d0), bits_u32(d1), bits_u32(d2), bits_u32(d3)};
}`;

export const matrices = {
  /**
   * Four 8×8 matrices of 16-bit elements from shared memory: lane 8 · m + r names row r of matrix m, and gets, as
   * word m, elements 2 · (lane % 4) and the next of row lane / 4.
   */
  ldmatrix: operation({
    signature: calls<(row: Pointer<'v16'>) => v16>(),
    takes: { row: pointerIn('shared', 'v16') },
    returns: 'v16',
    named: 'matrices',
    cuda: `DEVICE v16 ldmatrix(const v16* row) {
  v16 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(shared_address(row))
               : "memory");
  return m;
}`,
    simulate({ row }, machine) {
      machine.bringRow(row);
      machine.meet();
    },
    together: { complete: (words, first) => dealMatrices(words, first) },
  }),

  /**
   * a · bᵀ + sum on the tensor cores: a is 16×16 bf16, b one `half` (a constant, 0 or 1) of 16×16, sum and result are
   * 16×8 f32. Each v16 is one lane's part.
   */
  mma: operation({
    signature: calls<(a: v16, b: v16, half: number, sum: v16) => v16>(),
    takes: { a: value('v16'), b: value('v16'), half: count('the half of b', 1), sum: value('v16') },
    returns: 'v16',
    named: 'product',
    cuda: multiply,
    simulate({ a, b, half, sum }, machine) {
      const ofB = machine.words(b).slice(2 * half, 2 * half + 2);
      machine.meet(...machine.words(a), ...ofB, ...machine.words(sum));
    },
    together: { complete: (words, first) => multiplyMatrices(words, first) },
  }),
};

/**
 * Lane 8 · m + r brought row r of matrix m; each lane gets a word of each of `count` matrices, `turned` or not. `first`: thread of
 * lane 0.
 */
export function dealMatrices(parts: Int32Array, first: number, count = 4, turned = false): void {
  for (let lane = 0; lane < 8 * count; lane++)
    for (let i = 0; i < 4; i++) rowsOfLanes[4 * lane + i] = parts[matrixWords * (first + lane) + i]!;
  for (let lane = 0; lane < lanes; lane++) {
    const [row, pair] = [lane >> 2, lane & 3];
    for (let m = 0; m < count; m++) {
      const column = 64 * m + 16 * pair + row;
      parts[matrixWords * (first + lane) + m] = turned
        ? halves[column]! | (halves[column + 8]! << 16)
        : rowsOfLanes[4 * (8 * m + row) + pair]!;
    }
  }
}

/**
 * sum += a · bᵀ of 16 × k and 8 × k elements, bf16 or what `read` makes of 16 bits, over k from 0 on, rounded to f32 at every
 * step: in which order GPUs add nobody promises. The result replaces the first four words.
 */
export function multiplyMatrices(
  parts: Int32Array,
  first: number,
  k: 8 | 16 = 16,
  read?: (bits: number) => number,
): void {
  const [ofA, ofB] = [k / 4, k / 8];
  for (let lane = 0; lane < lanes; lane++) {
    const at = matrixWords * (first + lane);
    const [row, column] = [lane >> 2, 2 * (lane & 3)];
    for (let i = 0; i < ofA; i++)
      open(parts[at + i]!, a, k * (row + 8 * (i & 1)) + column + 8 * (i >> 1), read);
    for (let i = 0; i < ofB; i++) open(parts[at + ofA + i]!, b, k * row + column + 8 * i, read);
  }
  for (let lane = 0; lane < lanes; lane++) {
    const at = matrixWords * (first + lane);
    const [row, column] = [lane >> 2, 2 * (lane & 3)];
    for (let i = 0; i < 4; i++) {
      const [left, right] = [k * (row + 8 * (i >> 1)), k * (column + (i & 1))];
      word[0] = parts[at + ofA + ofB + i]!;
      for (let n = 0; n < k; n++) float[0]! += a[left + n]! * b[right + n]!;
      parts[at + i] = word[0]!;
    }
  }
}

/** Two elements of a word. */
function open(pair: number, into: Float32Array, at: number, read?: (bits: number) => number): void {
  if (read === undefined) {
    word[0] = pair << 16;
    into[at] = float[0]!;
    word[0] = pair & -65536;
    into[at + 1] = float[0]!;
  } else {
    into[at] = read(pair & 0xffff);
    into[at + 1] = read(pair >>> 16);
  }
}
