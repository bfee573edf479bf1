import { describe, expect, it } from 'vitest';
import { gigabytes, quantile, slowestRank, spread } from '../../../src/tools/bench/statistics.js';

describe('the method’s arithmetic', () => {
  it('takes of each iteration the slowest rank, whichever rank that is', () => {
    expect(
      slowestRank([Float64Array.of(1, 5, 3), Float64Array.of(2, 4, 3), Float64Array.of(0, 0, 9)]),
    ).toEqual([2, 5, 9]);
  });

  it('interpolates quantiles between neighbours, in any order of values', () => {
    expect(quantile([4, 1, 3, 2], 0.5)).toBe(2.5);
    expect(quantile([10, 0], 0.1)).toBe(1);
    expect(quantile([7], 0.9)).toBe(7);
  });

  it('spreads values without changing them', () => {
    const values = [5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11];
    expect(spread(values)).toEqual({ median: 6, p10: 2, p90: 10, min: 1, max: 11, count: 11 });
    expect(values[0]).toBe(5);
  });

  it('spreads the values of as many iterations as a run may have', () => {
    const values = Array.from({ length: 1_000_000 }, (_, i) => i);
    expect(spread(values)).toMatchObject({ min: 0, max: 999_999, count: 1_000_000 });
  });

  it('counts GB/s in 10^9 bytes', () => {
    expect(gigabytes(350_000, 1)).toBe(350);
  });
});
