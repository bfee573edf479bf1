import fc from 'fast-check';
import { expect, it } from 'vitest';
import { field, kept, phase, Requests } from '../../../src/net/fabric/core/requests.js';

const lane = { index: 0 };

it('no request is given out twice, and none of its earlier uses is taken for the present one', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 300 }), (steps) => {
      const requests = new Requests();
      const underway = new Map<number, number>();
      const past: [number, number][] = [];
      let room = 0;
      for (const step of steps) {
        if (step === 0) {
          requests.promise(3);
          room += 3;
        } else if (step < 6 && underway.size < room) {
          const slot = requests.take(lane, step, 0, 0);
          expect(underway.has(slot)).toBe(false);
          requests.state[slot * kept.words + kept.phase] = phase.posted;
          underway.set(slot, requests.state[slot * kept.words + kept.use]!);
        } else if (underway.size > 0) {
          const [slot, use] = [...underway][step % underway.size]!;
          expect(requests.holds(slot, use)).toBe(true);
          requests.put(slot);
          underway.delete(slot);
          past.push([slot, use]);
        }
        for (const [slot, use] of past) expect(requests.holds(slot, use)).toBe(false);
      }
      expect(requests.underway(0).sort()).toEqual([...underway.keys()].sort());
      requests.free();
    }),
    { seed: 11, numRuns: 100 },
  );
});

it('what was parked is described again, word for word', () => {
  const requests = new Requests();
  requests.promise(2);
  const [first, second] = [requests.take(lane, 1, 0, 0), requests.take(lane, 2, 0, 0)];
  const describe = (by: number) => {
    for (const word of Object.values(field)) requests.words[word] = by * word;
    return [...requests.words];
  };
  const one = describe(7);
  requests.park(first, 5);
  const two = describe(-9);
  requests.park(second, 6);
  expect(requests.unpark(first)).toBe(5);
  expect([...requests.words]).toEqual(one);
  expect(requests.unpark(second)).toBe(6);
  expect([...requests.words]).toEqual(two);
  requests.free();
});

it('what is overdue is found, also when the clock wraps', () => {
  const requests = new Requests();
  requests.promise(2);
  expect(requests.overdue(5)).toBe(-1);
  const slot = requests.take(lane, 1, 0, -(2 ** 31) + 10);
  expect(requests.overdue(2 ** 31 - 1)).toBe(-1);
  expect(requests.overdue(-(2 ** 31) + 11)).toBe(slot);
  requests.put(slot);
  expect(requests.overdue(-(2 ** 31) + 11)).toBe(-1);
  requests.free();
});
