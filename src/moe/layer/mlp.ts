/** The result of an expert for a row, in the plainest code. Kernels agree with it but for the order in which they add. */
import { ArgumentError, requireInteger, requireObject, requireOneOf } from '../../base/errors.js';
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

/**
 * The functions of a gate and of what it scales. SwiGLU is silu(gate) · up. gpt-oss's clamps both, and adds 1:
 * (clamped up + 1) · clamped gate · sigmoid(1.702 · clamped gate).
 */
export const activations = ['swiglu', 'clamped-swiglu'] as const;
export type Activation = (typeof activations)[number];

/** gpt-oss's numbers: no gate is larger than the limit, and nothing that it scales is further from 0. */
export const clampedSwiglu = { limit: 7, slope: 1.702 } as const;

/** The matrices of one expert, bf16: [2 · inner, hidden], gates first, and [hidden, inner]. */
export interface MlpMatrices {
  readonly gateUp: Bits;
  readonly down: Bits;
  /** bf16 [2 · inner] and [hidden]: they are added to the products. Default: none. */
  readonly gateUpBias?: Bits;
  readonly downBias?: Bits;
  /** Default 'swiglu'. */
  readonly activation?: Activation;
}

/** The matrices of one expert, e4m3, with a scale for every 128 × 128 elements: [2 · inner / 128, hidden / 128] and [hidden / 128, inner / 128]. */
export interface ScaledMatrices extends MlpMatrices {
  readonly gateUpScales: Float32Array;
  readonly downScales: Float32Array;
}

/**
 * down · (silu(gate · x) * (up · x)) of each bf16 row, [rows, hidden]; what lies between is rounded to bf16 too. A bias is added to the f32
 * product, before the activation or before a row that goes out is rounded.
 */
export function mlp(rows: Bits, hidden: number, matrices: MlpMatrices): Bits {
  requireInteger('hidden', hidden, 1, limits.rowBytes);
  requireObject('matrices', matrices, 'those of an expert, gateUp and down');
  const { gateUp, down } = matrices;
  requireWhole('rows', 'bf16', rows, hidden);
  requireWhole('down', 'bf16', down, hidden);
  requireWhole('gateUp', 'bf16', gateUp, 2 * down.length);
  const inner = down.length / hidden;
  const x = toF32('bf16', rows);
  const between = firstHalf(x, toF32('bf16', gateUp), hidden, matrices);
  const rounded = toF32('bf16', fromF32('bf16', between));
  return secondHalf(rounded, toF32('bf16', down), inner, matrices);
}

/**
 * The MLP of e4m3 rows and weights, each times its scale. Rows between are rounded to e4m3 as well, with a power of two for every
 * 128 elements; rows that go out are bf16.
 */
export function scaledMlp(rows: Bits, scales: Float32Array, hidden: number, matrices: ScaledMatrices): Bits {
  requireInteger('hidden', hidden, scaleBlock, limits.rowBytes);
  if (hidden % scaleBlock !== 0) throw new ArgumentError('hidden', hidden, `a multiple of ${scaleBlock}`);
  requireObject('matrices', matrices, 'those of an expert, gateUp and down, and their scales');
  const { gateUp, gateUpScales, down, downScales } = matrices;
  requireWhole('rows', 'e4m3', rows, hidden);
  requireWhole('down', 'e4m3', down, hidden * scaleBlock);
  requireWhole('gateUp', 'e4m3', gateUp, 2 * down.length);
  const inner = down.length / hidden;
  requireBits('gateUpScales', 'f32', gateUpScales, gateUp.length / scaleBlock ** 2);
  requireBits('downScales', 'f32', downScales, down.length / scaleBlock ** 2);
  const x = scaleRows(rows, scales);
  const between = firstHalf(x, scaleWeights(gateUp, gateUpScales, hidden), hidden, matrices);
  const rounded = between.slice();
  for (let at = 0; at < rounded.length; at += inner)
    rounded.set(dequantise(quantise(between.subarray(at, at + inner))), at);
  return secondHalf(rounded, scaleWeights(down, downScales, inner), inner, matrices);
}

/** What the activation makes of gates and what they scale, in f32. */
function firstHalf(
  x: Float32Array,
  gateUp: Float32Array,
  hidden: number,
  { gateUpBias, activation = 'swiglu' }: MlpMatrices,
): Float32Array {
  requireOneOf('activation', activation, activations);
  const both = biased('gateUpBias', product(x, gateUp, hidden), gateUp.length / hidden, gateUpBias);
  const inner = gateUp.length / hidden / 2;
  const made = new Float32Array(both.length / 2);
  for (let i = 0; i < made.length; i++) {
    const at = Math.floor(i / inner) * 2 * inner + (i % inner);
    made[i] = activate[activation](both[at]!, both[at + inner]!);
  }
  return made;
}

function secondHalf(
  between: Float32Array,
  down: Float32Array,
  inner: number,
  { downBias }: MlpMatrices,
): Bits {
  const columns = down.length / inner;
  return fromF32('bf16', biased('downBias', product(between, down, inner), columns, downBias));
}

const activate: Readonly<Record<Activation, (gate: number, up: number) => number>> = {
  swiglu: (gate, up) => (gate / (1 + Math.exp(-gate))) * up,
  'clamped-swiglu': (gate, up) => {
    const { limit, slope } = clampedSwiglu;
    const least = Math.min(gate, limit);
    return (Math.max(-limit, Math.min(up, limit)) + 1) * (least / (1 + Math.exp(-slope * least)));
  },
};

/** Rows of so many columns, to each of which a bias of bf16 is added in place, where there is one. */
function biased(argument: string, rows: Float32Array, columns: number, bias: Bits | undefined): Float32Array {
  if (bias === undefined) return rows;
  requireBits(argument, 'bf16', bias, columns);
  const values = toF32('bf16', bias);
  for (let i = 0; i < rows.length; i++) rows[i]! += values[i % columns]!;
  return rows;
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
