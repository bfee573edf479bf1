/** The result of an expert for a row, in the plainest code. Kernels agree with it but for the order in which they add. */
import { ArgumentError, requireInteger, requireObject } from '../../base/errors.js';
import {
  type Bits,
  dequantise,
  fromF32,
  quantise,
  requireBits,
  scaleBlock,
  toF32,
} from '../formats/index.js';
import { limits } from './shape.js';

/** Of one expert, bf16: [2 · inner, hidden], gates first, and [hidden, inner]. */
export interface MlpMatrices {
  readonly gateUp: Bits;
  readonly down: Bits;
}

/** Of one expert, e4m3, with a scale for every 128 × 128 elements: [2 · inner / 128, hidden / 128] and [hidden / 128, inner / 128]. */
export interface ScaledMatrices extends MlpMatrices {
  readonly gateUpScales: Float32Array;
  readonly downScales: Float32Array;
}

/** down · (silu(gate · x) * (up · x)) of each bf16 row, [rows, hidden]; what lies between is rounded to bf16 too. */
export function mlp(rows: Bits, hidden: number, matrices: MlpMatrices): Bits {
  requireInteger('hidden', hidden, 1, limits.rowBytes);
  requireObject('matrices', matrices, 'those of an expert, gateUp and down');
  const { gateUp, down } = matrices;
  requireWhole('rows', 'bf16', rows, hidden);
  requireWhole('down', 'bf16', down, hidden);
  requireWhole('gateUp', 'bf16', gateUp, 2 * down.length);
  const inner = down.length / hidden;
  const both = product(toF32('bf16', rows), toF32('bf16', gateUp), hidden);
  const rounded = toF32('bf16', fromF32('bf16', swiglu(both, inner)));
  return fromF32('bf16', product(rounded, toF32('bf16', down), inner));
}

/**
 * The same of e4m3 rows and weights, each times its scale. Rows between are rounded to e4m3 as well, with a power of two for every
 * 128 elements; rows that go out are bf16.
 */
export function scaledMlp(rows: Bits, scales: Float32Array, hidden: number, matrices: ScaledMatrices): Bits {
  requireInteger('hidden', hidden, scaleBlock, limits.rowBytes);
  requireObject('matrices', matrices, 'those of an expert, gateUp and down, and their scales');
  const { gateUp, gateUpScales, down, downScales } = matrices;
  requireWhole('rows', 'e4m3', rows, hidden);
  requireWhole('down', 'e4m3', down, hidden * scaleBlock);
  requireWhole('gateUp', 'e4m3', gateUp, 2 * down.length);
  const inner = down.length / hidden;
  requireBits('gateUpScales', 'f32', gateUpScales, gateUp.length / scaleBlock ** 2);
  requireBits('downScales', 'f32', downScales, down.length / scaleBlock ** 2);
  const x = scaleRows(rows, scales);
  const both = product(x, scaleWeights(gateUp, gateUpScales, hidden), hidden);
  const between = swiglu(both, inner);
  const rounded = between.slice();
  for (let at = 0; at < rounded.length; at += inner)
    rounded.set(dequantise(quantise(between.subarray(at, at + inner))), at);
  return fromF32('bf16', product(rounded, scaleWeights(down, downScales, inner), inner));
}

/** silu(gate) · up of rows that have the gates first. */
function swiglu(both: Float32Array, inner: number): Float32Array {
  const made = new Float32Array(both.length / 2);
  for (let i = 0; i < made.length; i++) {
    const at = Math.floor(i / inner) * 2 * inner + (i % inner);
    const gate = both[at]!;
    made[i] = (gate / (1 + Math.exp(-gate))) * both[at + inner]!;
  }
  return made;
}

/** e4m3 with a scale for every 128 elements. */
function scaleRows(rows: Bits, scales: Float32Array): Float32Array {
  requireBits('rows', 'e4m3', rows, 0);
  requireBits('scales', 'f32', scales, Math.ceil(rows.length / scaleBlock));
  return toF32('e4m3', rows).map((value, i) => value * scales[Math.floor(i / scaleBlock)]!);
}

/** e4m3 rows of `length` with a scale for every 128 × 128. */
function scaleWeights(weights: Bits, scales: Float32Array, length: number): Float32Array {
  const across = length / scaleBlock;
  return toF32('e4m3', weights).map((value, i) => {
    const [row, column] = [Math.floor(i / length), i % length];
    return value * scales[Math.floor(row / scaleBlock) * across + Math.floor(column / scaleBlock)]!;
  });
}

/** Rows of e4m3 with a scale for every 128 elements, as bf16. */
export function widen(rows: Bits, scales: Float32Array): Bits {
  return fromF32('bf16', scaleRows(rows, scales));
}

/** Requires whole rows of that length. */
function requireWhole(argument: string, dtype: 'bf16' | 'e4m3', rows: Bits, length: number): void {
  requireBits(argument, dtype, rows, 0);
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
