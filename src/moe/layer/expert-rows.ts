/**
 * Rows by expert: how they lie, and what plan, expand and reduce mean, in the plainest code. Kernels must agree with it bit
 * by bit.
 */
import { ArgumentError, requireInteger, requireObject, requireOneOf } from '../../base/errors.js';
import {
  type Bits,
  bitsArray,
  floatDtypes,
  fromF32,
  requireBits,
  requireDtype,
  toF32,
} from '../formats/index.js';
import { scaleRow, treeSum } from './arithmetic.js';
import { limits, type Shape } from './shape.js';

/** An expert's rows begin at a multiple of this. */
export const alignments = [1, 16, 64, 128] as const;
export type Alignment = (typeof alignments)[number];

/** Experts follow each other; or each has `capacity` rows of its own, `[experts, capacity]`. */
export const expertForms = ['contiguous', 'masked'] as const;
export type ExpertForm = (typeof expertForms)[number];

export interface ExpertRows {
  readonly form: ExpertForm;
  readonly alignment: Alignment;
  /** Rows of all experts together; of each, in the masked form. A multiple of the alignment. */
  readonly capacity: number;
}

/** Routes are numbered as `received.experts` has them: slot · topK + k. */
export interface ReferencePlan {
  /** Rows of each expert of this rank, from its first on. */
  readonly counts: Uint32Array;
  /** Where the rows of each expert begin; the last entry is where all rows end. */
  readonly offsets: Uint32Array;
  /** Each expert's routes, in the order of their numbers, then −1 up to a multiple of the alignment. */
  readonly routes: readonly Int32Array[];
  /** [route]: its row; −1 where it is elsewhere, or found no room. */
  readonly scatter: Int32Array;
  /** Routes that found no room. */
  readonly overflow: number;
}

/** The plan of the rank whose `mine.count` experts begin with id `mine.first`. */
export function plan(
  ids: Int32Array,
  mine: { readonly first: number; readonly count: number },
  rows: ExpertRows,
): ReferencePlan {
  requireBits('ids', 'i32', ids, 0);
  requireObject('mine', mine, 'the first of a rank’s experts, and their count');
  requireInteger('mine.first', mine.first, 0, limits.experts);
  requireInteger('mine.count', mine.count, 0, limits.experts);
  requireRows(rows);
  const { form, alignment, capacity } = rows;
  const counts = new Uint32Array(mine.count);
  const offsets = new Uint32Array(mine.count + 1);
  const routes: Int32Array[] = [];
  const scatter = new Int32Array(ids.length).fill(-1);
  const aligned = (rows: number): number => Math.ceil(rows / alignment) * alignment;
  let next = 0;
  let overflow = 0;
  for (let expert = 0; expert < mine.count; expert++) {
    const own = [...ids.keys()].filter((route) => ids[route] === mine.first + expert);
    const start = form === 'masked' ? expert * capacity : Math.min(next, capacity);
    const kept = own.slice(0, form === 'masked' ? capacity : capacity - start);
    for (const [i, route] of kept.entries()) scatter[route] = start + i;
    routes.push(Int32Array.from({ length: aligned(kept.length) }, (_, i) => kept[i] ?? -1));
    counts[expert] = kept.length;
    offsets[expert] = start;
    overflow += own.length - kept.length;
    next += aligned(own.length);
  }
  offsets[mine.count] = form === 'masked' ? mine.count * capacity : Math.min(next, capacity);
  return { counts, offsets, routes, scatter, overflow };
}

/** The rows of a payload where `scatter` wants them. Rows that it does not name hold nothing defined (here: zeros). */
export function expand(
  plane: Uint8Array,
  rowBytes: number,
  shape: Pick<Shape, 'topK'>,
  scatter: Int32Array,
  rows: number,
): Uint8Array {
  requireObject('shape', shape);
  const { topK } = shape;
  requireInteger('topK', topK, 1, limits.topK);
  requireInteger('rowBytes', rowBytes, 1, limits.rowBytes);
  requireBits('scatter', 'i32', scatter, 0);
  requireBits('plane', 'u8', plane, Math.ceil(scatter.length / topK) * rowBytes);
  requireInteger('rows', rows, 0, Math.floor(2 ** 31 / rowBytes)); // more than 2 GiB no test needs
  const expanded = new Uint8Array(rows * rowBytes);
  for (const [route, row] of scatter.entries()) {
    if (row < 0 || row >= rows) continue;
    const slot = Math.floor(route / topK);
    expanded.set(plane.subarray(slot * rowBytes, (slot + 1) * rowBytes), row * rowBytes);
  }
  return expanded;
}

/**
 * One row a slot, from the experts' rows: the tree sum, over its routes in order of k, of weight · row. Slots without a
 * route here hold nothing defined (here: zeros). `weights`: whether there are any; otherwise each counts as 1.
 */
export function reduce(
  shape: Pick<Shape, 'topK' | 'output'>,
  received: { readonly experts: Int32Array; readonly weights: Float32Array },
  scatter: Int32Array,
  expertRows: Bits,
  weights = true,
): Bits {
  requireObject('shape', shape);
  requireObject('output', shape.output);
  const { topK, output } = shape;
  const { dtype, hidden } = output;
  requireInteger('topK', topK, 1, limits.topK);
  requireDtype('output.dtype', dtype, floatDtypes);
  requireInteger('output.hidden', hidden, 1, limits.rowBytes);
  requireObject('received', received, 'what a rank received');
  requireBits('received.experts', 'i32', received.experts, 0);
  const routes = received.experts.length;
  if (weights) requireBits('received.weights', 'f32', received.weights, routes);
  requireBits('scatter', 'i32', scatter, routes);
  requireBits('expertRows', dtype, expertRows, 0);
  const slots = Math.floor(routes / topK);
  const rows = expertRows.length / hidden;
  const reduced = bitsArray(dtype, slots * hidden);
  for (let slot = 0; slot < slots; slot++) {
    const own: Float32Array[] = [];
    for (let route = slot * topK; route < (slot + 1) * topK; route++) {
      const row = scatter[route]!;
      if (row < 0 || row >= rows) continue;
      const values = toF32(dtype, expertRows.subarray(row * hidden, (row + 1) * hidden));
      own.push(weights ? scaleRow(values, received.weights[route]!) : values);
    }
    if (received.experts.subarray(slot * topK, (slot + 1) * topK).every((id) => id < 0)) continue;
    reduced.set(fromF32(dtype, treeSum(own, hidden)), slot * hidden);
  }
  return reduced;
}

function requireRows(rows: ExpertRows): void {
  requireObject('rows', rows, 'form, alignment and capacity');
  requireOneOf('form', rows.form, expertForms);
  if (!alignments.includes(rows.alignment))
    throw new ArgumentError('alignment', rows.alignment, `one of ${alignments.join(', ')}`);
  requireInteger('capacity', rows.capacity, 0, 2 ** 31);
}
