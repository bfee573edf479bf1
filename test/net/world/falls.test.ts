/** What a rank passes in a renewal, each time killed there. `test/faults` has all points, stops, layers, and the host. */
import { afterAll, describe, expect, it } from 'vitest';
import { endFalls, expectSurvived, type Falling, findPoints, namedPoints } from './falls.js';

afterAll(endFalls);

const falling: Falling = { host: 'launcher', layers: false };
const points = await findPoints(falling);

it('every point that the sources name is passed', () => {
  // Nobody is left out or comes back here; test/moe/masks.e2e.test.ts and rejoin.test.ts pass those points.
  expect(points).toEqual(
    expect.arrayContaining(namedPoints().filter((point) => !/^(mask|rejoin), /.test(point))),
  );
});

describe.concurrent('survivors of a rank that is killed in a renewal all end alike, and name nobody else', () => {
  it.each(points.filter((point) => point.startsWith('renewal')))('at: %s', async (point) => {
    await expectSurvived(falling, point, 'SIGKILL');
  });
});
