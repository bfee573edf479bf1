/** What an expert computes of a row, in the plainest code. Kernels agree with it but for the order in which they add. */
import { ArgumentError, requireInteger, requireObject } from '../../base/errors.js';
import { type Bits, fromF32, requireBits, scaleBlock, toF32 } from '../formats/index.js';
import { limits } from './shape.js';

/** Of one expert, bf16: [2 · inner, hidden], gates first, and [hidden, inner]. */
export interface MlpMatrices {
  readonly gateUp: Bits;
  readonly down: Bits;
}

/** down · (silu(gate · x) * (up · x)) of each bf16 row, [rows, hidden]; what lies between is rounded to bf16 too. */
export function mlp(rows: Bits, hidden: number, matrices: MlpMatrices): Bits {
  requireInteger('hidden', hidden, 1, limits.rowBytes);
  requireObject('matrices', matrices, 'those of an expert, gateUp and down');
  const { gateUp, down } = matrices;
  requireRows('rows', rows, hidden);
  requireRows('down', down, hidden);
  requireRows('gateUp', gateUp, 2 * down.length);
  const inner = down.length / hidden;
  const both = product(toF32('bf16', rows), toF32('bf16', gateUp), hidden);
  const between = new Float32Array((rows.length / hidden) * inner);
  for (let i = 0; i < between.length; i++) {
    const at = Math.floor(i / inner) * 2 * inner + (i % inner);
    const gate = both[at]!;
    between[i] = (gate / (1 + Math.exp(-gate))) * both[at + inner]!;
  }
  const rounded = toF32('bf16', fromF32('bf16', between));
  return fromF32('bf16', product(rounded, toF32('bf16', down), inner));
}

/** Rows of e4m3 with a scale for every 128 elements, as bf16. */
export function widen(rows: Bits, scales: Float32Array): Bits {
  requireBits('rows', 'e4m3', rows, 0);
  requireBits('scales', 'f32', scales, Math.ceil(rows.length / scaleBlock));
  const values = toF32('e4m3', rows);
  for (let i = 0; i < values.length; i++) values[i]! *= scales[Math.floor(i / scaleBlock)]!;
  return fromF32('bf16', values);
}

/** Requires bf16, whole rows of that length. */
function requireRows(argument: string, rows: Bits, length: number): void {
  requireBits(argument, 'bf16', rows, 0);
  if (rows.length % length !== 0) throw new ArgumentError(argument, rows, `a multiple of ${length} elements`);
}

/** [rows, length] times the transpose of [columns, length]. */
function product(rows: Float32Array, weights: Float32Array, length: number): Float32Array {
  const columns = weights.length / length;
  const made = new Float32Array((rows.length / length) * columns);
  for (let i = 0; i < made.length; i++) {
    const [row, column] = [Math.floor(i / columns) * length, (i % columns) * length];
    let sum = 0;
    for (let k = 0; k < length; k++) sum += rows[row + k]! * weights[column + k]!;
    made[i] = sum;
  }
  return made;
}
