import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  dequantise,
  quantisationBound,
  quantise,
  scaleBlock,
  scaleRow,
  treeSum,
} from '../../../src/moe/layer/index.js';
import { randomElements } from '../../../src/verify/testing/index.js';

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

describe('rows as e4m3', () => {
  const rows = fc.tuple(
    fc.integer({ min: 1, max: 300 }),
    fc.integer({ min: 0, max: 2 ** 31 }),
    fc.integer({ min: -60, max: 100 }),
    fc.constantFrom(0, 3, 12, 30),
  );

  it('change no element by more than the stated bound, and none by more than amax/17 of its block', () => {
    fc.assert(
      fc.property(rows, ([length, seed, exponent, spread]) => {
        const x = scaleRow(randomElements('f32', length, seed, spread) as Float32Array, 2 ** exponent);
        const sent = quantise(x);
        const y = dequantise(sent);
        expect(sent.scales).toHaveLength(Math.ceil(length / scaleBlock));
        for (let i = 0; i < length; i++) {
          const block = Math.floor(i / scaleBlock);
          const amax = Math.max(...x.subarray(block * scaleBlock, (block + 1) * scaleBlock).map(Math.abs));
          const error = Math.abs(y[i]! - x[i]!);
          expect(error).toBeLessThanOrEqual(quantisationBound(x[i]!, sent.scales[block]!));
          expect(error).toBeLessThanOrEqual(amax / 17);
        }
      }),
      { seed: 3, numRuns: 200 },
    );
  });

  it('come within a hair of the bound: it is the best one', () => {
    const tie = 256 * (1 + 1 / 16); // halfway between 256 and 288, rounds to the even 256
    const error = Math.abs(dequantise(quantise(row(tie)))[0]! - tie);
    expect(error).toBe(tie / 17);
  });

  it('scale each block by the smallest power of two that makes its largest fit', () => {
    fc.assert(
      fc.property(fc.float({ noNaN: true, noDefaultInfinity: true, min: Math.fround(2 ** -110) }), (amax) => {
        const scale = quantise(row(amax, -amax / 3)).scales[0]!;
        expect(Number.isInteger(Math.log2(scale))).toBe(true);
        expect(amax / scale).toBeLessThanOrEqual(448);
        expect(amax / scale).toBeGreaterThan(224);
      }),
      { seed: 4, numRuns: 500 },
    );
    expect(quantise(row(448)).scales[0]).toBe(1);
    expect(quantise(row(Math.fround(448 * (1 + 2 ** -22)))).scales[0]).toBe(2);
    expect(quantise(row(0)).scales[0]).toBe(2 ** -126);
    expect(quantise(row(2 ** -149)).scales[0]).toBe(2 ** -126);
  });

  it('keep values that e4m3 holds, whatever the power of two', () => {
    const held = [448, -416, 1, -0.015625, 2 ** -9, 0, -0];
    for (const exponent of [-110, -1, 0, 100]) {
      const x = scaleRow(Float32Array.from(held), 2 ** exponent);
      expect(dequantise(quantise(x))).toEqual(x);
    }
  });

  it('give each block its own scale, so that a large block does not drown a small one', () => {
    const x = new Float32Array(scaleBlock + 1).fill(2 ** 60);
    x[scaleBlock] = 2 ** -60;
    expect(dequantise(quantise(x))).toEqual(x);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    'poison the whole block that holds %d, and only that',
    (poison) => {
      const x = new Float32Array(2 * scaleBlock).fill(1);
      x[5] = poison;
      const y = dequantise(quantise(x));
      expect(y.subarray(0, scaleBlock).every(Number.isNaN)).toBe(true);
      expect(y.subarray(scaleBlock).every((value) => value === 1)).toBe(true);
    },
  );
});
