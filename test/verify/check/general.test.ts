/** What any family is checked with, as Heddle's own carry it: each as far as it can, without a finding. */
import { expect, test } from 'vitest';
import { formatFinding } from '../../../src/gpu/sim/index.js';
import { familyNamed } from '../../../src/moe/families/index.js';
import { check, checkSubjects, runOnce, seedOf, subjectsNamed } from '../../../src/verify/check/index.js';
import { generalOf } from '../../../src/verify/check/subjects/general.js';

test.each([
  [
    'one-sided',
    [
      'one-sided, split',
      'one-sided, groups of 2',
      'one-sided, e4m3',
      'one-sided, combine weighs rows of a plan',
    ],
    ['one-sided, split, a rank lost in dispatch', 'one-sided, groups of 2, a rank lost in combine'],
  ],
  [
    'hybrid',
    ['hybrid, on nodes, all remote', 'hybrid, on nodes, a graph, replayed'],
    ['hybrid, split, a rank lost in dispatch', 'hybrid, groups of 2, a rank lost in combine'],
  ],
  [
    'portable',
    ['portable, e4m3', 'portable over nvshmem, groups'],
    ['portable over nvshmem, a rank lost in dispatch', 'portable, split, a rank lost in combine'],
  ],
])('%s', async (name, rounds, losses) => {
  const wanted = [...rounds, ...losses];
  const all = generalOf(familyNamed(name)).flatMap(({ configurations }) => configurations);
  const configurations = all.filter((one) => wanted.includes(one.name));
  expect(configurations.map((one) => one.name).sort()).toEqual(wanted.sort());
  const { findings } = await check([{ name, kernels: ['example_experts'], configurations }], { seeds: 1 });
  expect(findings.map(formatFinding)).toEqual([]);
});

/** One rank of a node gives up in dispatch, and in some schedules its neighbour does not. */
test('behind a dispatch that gave up nobody reads what was not made', async () => {
  const name = 'hybrid, groups of 2, a rank lost in dispatch';
  const { configurations } = checkSubjects.find((subject) => subject.name === 'hybrid')!;
  const configuration = configurations.find((one) => one.name === name)!;
  for (const n of [3, 11]) {
    const { findings } = await runOnce(configuration, { seed: seedOf(n), schedule: 'priority' });
    expect(findings.map(formatFinding)).toEqual([]);
  }
});

test('a family’s name stands for all that is checked of it', () => {
  const named = (name: string) => subjectsNamed(checkSubjects, [name]).map((subject) => subject.name);
  expect(named('portable')).toEqual(['portable', 'portable_weigh', 'portable_nvshmem']);
  expect(named('one-sided')).toHaveLength(7);
});
