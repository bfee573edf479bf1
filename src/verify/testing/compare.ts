/** Comparing a run with the reference: bit by bit, and how far off where bits differ. */
import {
  ArgumentError,
  requireArray,
  requireInteger,
  requireObject,
  requireText,
} from '../../base/errors.js';
import {
  type Bits,
  type Dtype,
  type FloatDtype,
  floatDtypes,
  isFloat,
  type ReferenceReceived,
  reference,
  requireBits,
  requireDtype,
  requireShape,
  type Shape,
  type Source,
  sharing,
  toF32,
} from '../../moe/layer/index.js';

export interface Comparison {
  readonly compared: number;
  /** Elements whose bits differ. Any NaN equals any NaN. */
  readonly different: number;
  /** The largest |actual − expected|; infinite where one of them is NaN or they are different infinities. */
  readonly maxAbsError: number;
  /** The first difference, for people: `out[3, 17] is 1.5, expected 1.25`. */
  readonly first?: string;
}

const nothingCompared: Comparison = { compared: 0, different: 0, maxAbsError: 0 };

export function mergeComparisons(comparisons: readonly Comparison[]): Comparison {
  requireArray('comparisons', comparisons);
  let merged = nothingCompared;
  for (const [i, next] of comparisons.entries()) {
    requireComparison(`comparisons[${i}]`, next);
    const first = merged.first ?? next.first;
    merged = {
      compared: merged.compared + next.compared,
      different: merged.different + next.different,
      maxAbsError: Math.max(merged.maxAbsError, next.maxAbsError),
      ...(first === undefined ? {} : { first }),
    };
  }
  return merged;
}

function requireComparison(argument: string, of: Comparison): void {
  requireObject(argument, of, 'what a comparison found');
  for (const name of ['compared', 'different', 'maxAbsError'] as const)
    if (typeof of[name] !== 'number') throw new ArgumentError(`${argument}.${name}`, of[name], 'a number');
}

/** Compares stored elements. `what` and `columns` make the position readable. */
export function compareBits(
  what: string,
  dtype: Dtype,
  actual: Bits,
  expected: Bits,
  columns?: number,
): Comparison {
  return compareElements(what, dtype, actual, expected, columns, () => false);
}

/**
 * Compares floats that were added up in another order: they may differ by a part of themselves, and of the largest, as
 * large as the rounding of bf16 makes it; or by another part of the largest, where more than once is rounded.
 */
export function compareClosely(
  what: string,
  dtype: FloatDtype,
  actual: Bits,
  expected: Bits,
  columns?: number,
  part = 2 ** -9,
): Comparison {
  requireDtype('dtype', dtype, floatDtypes);
  if (typeof part !== 'number') throw new ArgumentError('part', part, 'a number, such as 2 ** -9');
  const largest = toF32(dtype, expected)
    .filter(Number.isFinite)
    .reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  const near = (is: number, wanted: number) =>
    Number.isFinite(wanted) && Math.abs(is - wanted) <= 2 ** -7 * Math.abs(wanted) + part * largest;
  return compareElements(what, dtype, actual, expected, columns, near);
}

function compareElements(
  what: string,
  dtype: Dtype,
  actual: Bits,
  expected: Bits,
  columns: number | undefined,
  near: (is: number, wanted: number) => boolean,
): Comparison {
  requireText('what', what);
  requireDtype('dtype', dtype);
  requireBits('actual', dtype, actual, 0);
  requireBits('expected', dtype, expected, 0);
  if (columns !== undefined) requireInteger('columns', columns, 1, Number.MAX_SAFE_INTEGER);
  if (actual.length !== expected.length) {
    return {
      compared: expected.length,
      different: Math.max(expected.length, actual.length),
      maxAbsError: Number.POSITIVE_INFINITY,
      first: `${what} has ${actual.length} elements, expected ${expected.length}`,
    };
  }
  let different = 0;
  let maxAbsError = 0;
  let first: string | undefined;
  for (let i = 0; i < expected.length; i++) {
    // Narrow floats are compared as integers; for f32 values, Object.is tells −0 from 0.
    if (Object.is(actual[i], expected[i])) continue;
    const [is, wanted] = [value(dtype, actual, i), value(dtype, expected, i)];
    if (Number.isNaN(is) && Number.isNaN(wanted)) continue;
    const error = Math.abs(is - wanted);
    maxAbsError = Math.max(maxAbsError, Number.isNaN(error) ? Number.POSITIVE_INFINITY : error);
    if (near(is, wanted)) continue;
    different++;
    const position =
      columns === undefined || columns === expected.length
        ? `${i}`
        : `${Math.floor(i / columns)}, ${i % columns}`;
    first ??= `${what}[${position}] is ${show(is)}, expected ${show(wanted)}`;
  }
  return { compared: expected.length, different, maxAbsError, ...(first === undefined ? {} : { first }) };
}

/** The rows that a rank really received. Values that the run does not deliver (weights, counts) are left out. */
export type Delivered = Pick<ReferenceReceived, 'experts' | 'payloads'> &
  Partial<Pick<ReferenceReceived, 'weights' | 'counts'>>;

/**
 * Compares what `rank` received with what it should have: ids, weights and counts everywhere, payload bytes only in
 * slots with a route here (the others hold nothing that anyone may read).
 */
export function compareReceived(
  shape: Shape,
  sources: readonly Source[],
  rank: number,
  actual: Delivered,
): Comparison {
  const expected = reference.dispatch(shape, sources, rank);
  requireObject('actual', actual, 'what a rank received');
  requireObject('actual.payloads', actual.payloads, 'rows by name');
  const at = `rank ${rank}: `;
  const found = [compareBits(`${at}experts`, 'i32', actual.experts, expected.experts, shape.topK)];
  if (actual.weights) {
    found.push(compareBits(`${at}weights`, 'f32', actual.weights, expected.weights, shape.topK));
  }
  if (actual.counts) found.push(compareBits(`${at}counts`, 'u32', actual.counts, expected.counts));
  for (const { name, rowBytes } of shape.payloads) {
    const plane = actual.payloads[name];
    if (plane?.length !== expected.payloads[name]!.length) {
      found.push(compareBits(`${at}${name}`, 'u8', plane ?? new Uint8Array(0), expected.payloads[name]!));
      continue;
    }
    for (let slot = 0; slot < sharing(shape).groups * shape.maxTokens; slot++) {
      const ids = expected.experts.subarray(slot * shape.topK, (slot + 1) * shape.topK);
      if (ids.every((id) => id < 0)) continue;
      const row = (bytes: Uint8Array) => bytes.subarray(slot * rowBytes, (slot + 1) * rowBytes);
      const where = `${at}${name}[${Math.floor(slot / shape.maxTokens)}, ${slot % shape.maxTokens}]`;
      found.push(compareBits(where, 'u8', row(plane), row(expected.payloads[name]!)));
    }
  }
  return mergeComparisons(found);
}

/** Compares the rows that a rank got back from combine, `[tokens, hidden]`, with the reference's. */
export function compareCombined(shape: Shape, rank: number, actual: Bits, expected: Bits): Comparison {
  requireShape(shape);
  requireInteger('rank', rank, 0, shape.ranks - 1);
  return compareBits(`rank ${rank}: out`, shape.output.dtype, actual, expected, shape.output.hidden);
}

function value(dtype: Dtype, bits: Bits, index: number): number {
  return isFloat(dtype) ? toF32(dtype, bits.subarray(index, index + 1))[0]! : bits[index]!;
}

function show(value: number): string {
  return Object.is(value, -0) ? '-0' : String(value);
}
