import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { scaleRow, treeSum } from '../../../src/moe/layer/index.js';

const f32 = fc.float({ noNaN: true, noDefaultInfinity: true });
const row = (...values: number[]) => Float32Array.from(values);

/** The tree another way round: the largest power of two below n goes left, the rest right. */
function recursiveSum(values: readonly number[]): number {
  if (values.length === 0) return 0;
  if (values.length === 1) return values[0]!;
  let left = 1;
  while (left * 2 < values.length) left *= 2;
  return Math.fround(recursiveSum(values.slice(0, left)) + recursiveSum(values.slice(left)));
}

/** The tree as a kernel with `width` registers adds it: absent places hold −0, place 0 holds +0 when absent. */
function paddedSum(values: readonly number[], width: number): number {
  let level = Array.from({ length: width }, (_, i) => values[i] ?? (i === 0 ? 0 : -0));
  while (level.length > 1) {
    level = Array.from({ length: Math.ceil(level.length / 2) }, (_, i) =>
      2 * i + 1 < level.length ? Math.fround(level[2 * i]! + level[2 * i + 1]!) : level[2 * i]!,
    );
  }
  return level[0]!;
}

describe('the tree sum', () => {
  it('adds neighbours, carries the odd one, and is never in another order', () => {
    fc.assert(
      fc.property(fc.array(f32, { maxLength: 32 }), (values) => {
        const sum = treeSum(
          values.map((value) => row(value)),
          1,
        )[0]!;
        expect(sum).toBe(recursiveSum(values));
        // 32 registers, of which the first `values.length` are in use: the same bits, the sign of zero included.
        expect(paddedSum(values, 32)).toBe(sum);
        expect(paddedSum(values, Math.max(1, values.length))).toBe(sum);
      }),
      { seed: 2, numRuns: 500 },
    );
  });

  it('differs from a sum from left to right, so that a kernel with the wrong order is caught', () => {
    // The last one vanishes when it meets the large one alone, and survives when it meets its equal first.
    expect(treeSum([row(2 ** 24), row(0), row(1), row(1)], 1)[0]).toBe(2 ** 24 + 2);
    expect([2 ** 24, 0, 1, 1].reduce((sum, value) => Math.fround(sum + value))).toBe(2 ** 24);
  });

  it('of nothing is +0, and of one row is that row, −0 kept', () => {
    expect(treeSum([], 2)).toEqual(row(0, 0));
    expect(Object.is(treeSum([row(-0)], 1)[0], -0)).toBe(true);
  });
});

it('a weighted row rounds each product to f32', () => {
  expect(scaleRow(row(1 + 2 ** -23, 3), 1 + 2 ** -23)).toEqual(row(1 + 2 ** -22, 3 + 2 ** -21));
});
