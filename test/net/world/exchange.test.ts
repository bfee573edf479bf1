import { describe, expect, it } from 'vitest';
import { Exchange, type Loss } from '../../../src/net/world/exchange.js';

const call = (timeoutMs: number) =>
  ({ id: 0, kind: 'barrier', operation: 'x', bytes: new Uint8Array(0), timeoutMs }) as const;
/** A seat that hears nothing. */
const deaf = { completed() {}, failed() {}, regrouped() {}, waiting() {}, lost() {} };

// Everything else about it is seen through the circles, in circle.test.ts.
describe('a round', () => {
  it.each([
    ['first', [20, 600_000]],
    ['last', [600_000, 20]],
  ])('ends when the patience of the least patient rank does, who came %s', async (_, patience) => {
    const exchange = new Exchange(3);
    const losses = patience.map(
      (timeoutMs, rank) =>
        new Promise<Loss>((lost) => {
          exchange.sit(rank, { ...deaf, lost });
          exchange.arrive(rank, call(timeoutMs));
        }),
    );
    for (const loss of await Promise.all(losses)) {
      expect(loss).toEqual({
        ranks: [2],
        operation: 'x',
        why: 'the others waited 20 ms; never joined: rank 2',
      });
    }
  });

  it('is answered to rank 0 last, who may host the exchange and end at once', () => {
    const exchange = new Exchange(3);
    const order: number[] = [];
    for (const rank of [1, 0, 2]) exchange.sit(rank, { ...deaf, completed: () => order.push(rank) });
    for (const rank of [2, 0, 1]) exchange.arrive(rank, call(1000));
    expect(order).toEqual([2, 1, 0]);
  });
});
