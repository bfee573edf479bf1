import { expect, it } from 'vitest';
import { missedInTheEnd } from '../../src/moe/rounds/loss.js';
import { LocalCircle } from '../../src/net/world/local-circle.js';

/**
 * By rank: whom it misses in the end, where these missed those. The others say nothing. A rank waits a quarter of `waitMs` for the others'
 * words, and gives the circle twice as long to bring them: long enough for a busy machine to tell the two apart.
 */
async function inTheEnd(
  ranks: number,
  missed: readonly (readonly [by: number, peer: number])[],
  waitMs = 400,
) {
  const circles = LocalCircle.create(ranks);
  const found = await Promise.all(
    missed.map(([by, peer]) => missedInTheEnd({ circle: circles[by]!, ranks }, peer, waitMs)),
  );
  await Promise.all(circles.map((circle) => circle.dispose()));
  return found;
}

it('names whom the missed rank itself missed, however far that is', async () => {
  expect(
    await inTheEnd(5, [
      [0, 4],
      [1, 0],
      [2, 1],
      [3, 2],
    ]),
  ).toEqual([4, 4, 4, 4]);
});

it('names each lost rank to whoever waited for it', async () => {
  expect(
    await inTheEnd(6, [
      [0, 4],
      [1, 5],
      [2, 0],
      [3, 1],
    ]),
  ).toEqual([4, 5, 4, 5]);
});

it('names the peer where ranks missed each other, and where the rank that it missed says nothing', async () => {
  expect(
    await inTheEnd(4, [
      [0, 1],
      [1, 2],
      [2, 0],
    ]),
  ).toEqual([1, 2, 0]);
  expect(await inTheEnd(4, [[0, 3]])).toEqual([3]);
});

it('believes no word that names no rank', async () => {
  const circles = LocalCircle.create(3);
  const word = circles[1]!.survey(Buffer.from('nobody'), 1);
  expect(await missedInTheEnd({ circle: circles[0]!, ranks: 3 }, 1, 1)).toBe(1);
  await word;
});

it('waits for nobody where there is one other rank, and where ranks are counted in another way', async () => {
  const [circle] = LocalCircle.create(2);
  const waitMs = 1_000_000;
  expect(await missedInTheEnd({ circle: circle!, ranks: 2 }, 1, waitMs)).toBe(1);
  expect(await missedInTheEnd({ circle: circle!, ranks: 3 }, 2, waitMs)).toBe(2);
});

it('is the peer where the circle does not answer', async () => {
  const circle = { ranks: 3, survey: () => new Promise<never>(() => {}) };
  expect(await missedInTheEnd({ circle, ranks: 3 }, 1, 1)).toBe(1);
});

it('is the peer where the circle hears of a loss meanwhile', async () => {
  const circles = LocalCircle.create(4);
  const found = missedInTheEnd({ circle: circles[0]!, ranks: 4 }, 2, 1_000_000);
  circles[1]!.abandon('it falls');
  expect(await found).toBe(2);
});
