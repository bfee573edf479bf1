import { describe, expect, it } from 'vitest';
import { Exchange, type Loss } from '../../src/world/exchange.js';

// Everything else about it is seen through the groups, in group.test.ts.
describe('a round', () => {
  it.each([
    ['first', [20, 600_000]],
    ['last', [600_000, 20]],
  ])('ends when the patience of the least patient rank does, who came %s', async (_, patience) => {
    const exchange = new Exchange(3);
    const losses = patience.map(
      (timeoutMs, rank) =>
        new Promise<Loss>((lost) => {
          exchange.sit(rank, { completed: () => {}, failed: () => {}, lost });
          exchange.arrive(rank, {
            id: 0,
            kind: 'barrier',
            operation: 'x',
            bytes: new Uint8Array(0),
            timeoutMs,
          });
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
});
