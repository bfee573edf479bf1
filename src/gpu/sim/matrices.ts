/**
 * Matrices that a warp holds together: which elements lie in which lane, as PTX documents it for `ldmatrix` and for
 * `mma.m16n8k16` with bf16. A lane is row `lane / 4` and pair of columns `lane % 4` of each 8×8 matrix.
 */
import { matrixWords } from './compiled.js';

const lanes = 32;
const rowsOfLanes = new Int32Array(4 * lanes);
const [a, b] = [new Float32Array(16 * 16), new Float32Array(8 * 16)];
const word = new Int32Array(1);
const float = new Float32Array(word.buffer);

/** Lane 8 · m + r brought row r of matrix m; each lane gets a word of each matrix. `first`: thread of lane 0. */
export function dealMatrices(parts: Int32Array, first: number): void {
  for (let lane = 0; lane < lanes; lane++)
    for (let i = 0; i < 4; i++) rowsOfLanes[4 * lane + i] = parts[matrixWords * (first + lane) + i]!;
  for (let lane = 0; lane < lanes; lane++) {
    const [row, pair] = [lane >> 2, lane & 3];
    for (let m = 0; m < 4; m++)
      parts[matrixWords * (first + lane) + m] = rowsOfLanes[4 * (8 * m + row) + pair]!;
  }
}

/** sum += a · bᵀ, over k from 0 on, rounded to f32 at every step; the result replaces the first four words. */
export function multiplyMatrices(parts: Int32Array, first: number): void {
  for (let lane = 0; lane < lanes; lane++) {
    const at = matrixWords * (first + lane);
    const [row, column] = [lane >> 2, 2 * (lane & 3)];
    for (let i = 0; i < 4; i++) open(parts[at + i]!, a, 16 * (row + 8 * (i & 1)) + column + 8 * (i >> 1));
    for (let i = 0; i < 2; i++) open(parts[at + 4 + i]!, b, 16 * row + column + 8 * i);
  }
  for (let lane = 0; lane < lanes; lane++) {
    const at = matrixWords * (first + lane);
    const [row, column] = [lane >> 2, 2 * (lane & 3)];
    for (let i = 0; i < 4; i++) {
      const [ofA, ofB] = [16 * (row + 8 * (i >> 1)), 16 * (column + (i & 1))];
      word[0] = parts[at + 6 + i]!;
      for (let k = 0; k < 16; k++) float[0]! += a[ofA + k]! * b[ofB + k]!;
      parts[at + i] = word[0]!;
    }
  }
}

/** Two bf16 of a word. */
function open(pair: number, into: Float32Array, at: number): void {
  word[0] = pair << 16;
  into[at] = float[0]!;
  word[0] = pair & -65536;
  into[at + 1] = float[0]!;
}
