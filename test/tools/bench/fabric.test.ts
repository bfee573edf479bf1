import { expect, it } from 'vitest';
import { Measurements } from '../../../src/tools/bench/fabric/measurements.js';
import { measureRounds } from '../../../src/tools/bench/fabric/measures.js';

it('of rounds of a scatter and a barrier, the best of the repetitions counts of each', async () => {
  const runs = [
    { scatter: 30, barrier: 9 },
    { scatter: 20, barrier: 7 },
    { scatter: 40, barrier: 8 },
  ];
  const bench = new Measurements({
    ...{ provider: 'shm', device: 'shm', baseline: null },
    ...{ repeat: runs.length, scale: 1, progress: () => {} },
  });
  bench.roles = async <T>() => [runs.shift()] as T[];
  await measureRounds(bench, 4);
  expect(bench.figures.map(({ what, heddle, how }) => [what, heddle, how.split('; ')[1]])).toEqual([
    ['scatter among 4 processes', 20, 'best of 3'],
    ['barrier among 4 processes', 7, 'best of 3'],
  ]);
});
