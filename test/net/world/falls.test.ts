/** What a rank passes where others are left out, each time killed there. `test/faults` has all points, stops, layers, and the host. */
import { afterAll, describe, expect, it } from 'vitest';
import { endFalls, expectSurvived, type Falling, findPoints, namedPoints } from './falls.js';

afterAll(endFalls);

const falling: Falling = { host: 'launcher', layers: false };
const points = await findPoints(falling);

it('every point that the sources name is passed', () => {
  // Nobody comes back here; test/moe/rejoin.test.ts passes those points.
  expect(points).toEqual(expect.arrayContaining(namedPoints().filter((point) => !/^rejoin, /.test(point))));
});

describe.concurrent('survivors of a rank that is killed where another is left out all end alike, and name nobody else', () => {
  it.each(points.filter((point) => /^(regroup|mask), /.test(point)))('at: %s', async (point) => {
    await expectSurvived(falling, point, 'SIGKILL');
  });
});
