import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { expertsOf, ownerOf, ranksOf } from '../../../src/moe/layer/index.js';
import { ownerTable } from '../arbitrary.js';

describe('how experts are split over ranks', () => {
  it('deals them out in order, the first ranks one more each, for any numbers', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 72 }), fc.integer({ min: 1, max: 400 }), (ranks, experts) => {
        const shape = { ranks, experts };
        const table = ownerTable(shape);
        expect(table).toHaveLength(experts);
        for (let id = 0; id < experts; id++) expect(ownerOf(shape, id)).toBe(table[id]);
        let next = 0;
        for (let rank = 0; rank < ranks; rank++) {
          const { first, count } = expertsOf(shape, rank);
          expect(first).toBe(next);
          expect(count).toBe(table.filter((owner) => owner === rank).length);
          next += count;
        }
      }),
      { seed: 1, numRuns: 200 },
    );
  });

  it('leaves the last ranks without experts when there are fewer experts than ranks', () => {
    expect([0, 1, 2].map((id) => ownerOf({ ranks: 8, experts: 3 }, id))).toEqual([0, 1, 2]);
    expect(expertsOf({ ranks: 8, experts: 3 }, 5)).toEqual({ first: 3, count: 0 });
  });
});

it('lists the ranks of a token once each, in order of first appearance, without −1 and ids out of range', () => {
  const shape = { ranks: 4, experts: 16 };
  expect(ranksOf(shape, [13, 2, -1, 14, 5, 0, 16, -9])).toEqual([3, 0, 1]);
  expect(ranksOf(shape, [-1, 99])).toEqual([]);
});
