/** A new family is a folder and a line: whatever takes a family by its name takes this one, which src does not know. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { formatFinding } from '../../../src/gpu/sim/index.js';
import { type Family, families, familyNamed } from '../../../src/moe/families/index.js';
import { ExpertParallel, row } from '../../../src/moe/index.js';
import { World } from '../../../src/net/world/index.js';
import { check } from '../../../src/verify/check/index.js';
import { common, configurationsOf } from '../../../src/verify/check/subjects/rounds.js';
import { familyShape } from '../../../src/verify/kernels/index.js';
import type { RoundsShape } from '../../../src/verify/testing/index.js';
import { naive } from './own-family/family.js';
import { expectReference, type RoundsUnderTest } from './rounds.js';

// The line. Heddle's own families stand in families.ts; this one comes and goes with the tests.
const list = families as Family[];
beforeAll(() => void list.push(naive));
afterAll(() => void list.splice(list.indexOf(naive), 1));

const layer: RoundsShape = {
  ...{ ranks: 3, experts: 7, topK: 4, maxTokens: 5 },
  ...{ hidden: 24, dtype: 'bf16', extra: [1, 6, 33] },
};
const options = {
  ...{ experts: 7, topK: 4, maxTokens: 5, family: 'naive' },
  ...{ payloads: { x: row('bf16', 24) }, output: row('bf16', 24) },
};

describe('ExpertParallel carries its rounds', () => {
  const uneven = [
    [5, 0, 2],
    [0, 3, 5],
  ];
  const cases: readonly [string, RoundsUnderTest, Partial<RoundsShape>?][] = [
    ['full rounds', {}],
    ['rows of odd length', {}, { hidden: 7 }],
    ['f32', {}, { dtype: 'f32' }],
    ['no weights', { weights: false }],
    ['more threads', { tuning: { dispatch: { threads: 256 }, combine: { threads: 64 } } }],
    ['ranks that bring nothing, routes to nobody', { tokens: uneven, routes: { holes: 0.5 } }],
  ];
  test.each(cases)('as the reference: %s', (_, options, change = {}) =>
    expectReference({ ...layer, ...change }, { family: 'naive', mode: 'checked', ...options }),
  );

  test('in other schedules, without a finding', async () => {
    const shapes = ['2 ranks', '3 ranks', 'empty ranks and empty rounds', 'a graph, replayed'];
    const few = Object.fromEntries(shapes.map((name) => [name, { ...common[name], counts: false }]));
    const launch = { threads: 32 };
    const tuning = { dispatch: launch, combine: launch };
    const configurations = configurationsOf('naive', few, () => ({ family: 'naive', tuning }));
    const subject = { name: 'naive', kernels: ['naive_dispatch', 'naive_combine'], configurations };
    const { schedules, findings } = await check([subject], { seeds: 5 });
    expect(findings.map(formatFinding)).toEqual([]);
    expect(schedules).toBe(20);
  });
});

test('its tuning is checked by its own table, and read from a shape', async () => {
  const create = (threads: number) =>
    World.local({ ranks: 3, device: 'sim' }, (world) =>
      ExpertParallel.create(world, {
        ...options,
        tuning: { dispatch: { threads }, combine: { threads: 64 } },
      }),
    );
  await expect(create(48)).rejects.toThrow('tuning.dispatch.threads is 48; it must be a multiple of 32');
  const { tuning } = familyShape(naive, { ranks: 3, 'dispatch.threads': 64 }, false);
  expect(tuning).toEqual({ dispatch: { threads: 64 }, combine: { threads: 128 } });
  expect(() => familyShape(naive, { 'dispatch.blocks': 2 }, false)).toThrow('dispatch.blocks');
});

test.each([
  [{ split: true }, 'split is true'],
  [{ counts: true }, 'counts is true'],
  [{ weighting: 'combine' }, "it must be 'experts'"],
  [{ transport: 'nvshmem' }, "it must be 'windows'"],
  [{ nodes: 3 }, 'this world has 3'],
  [{ ranks: 64, tuning: { dispatch: { threads: 32 }, combine: { threads: 64 } } }, 'at least ranks, 64'],
] as const)('what it refuses is refused: %o', (change, why) => {
  expect(() => ExpertParallel.memory({ ranks: 3, ...options, ...change })).toThrow(why);
});

test('its memory is counted without a GPU, by section', () => {
  const { parts } = ExpertParallel.memory({ ranks: 3, ...options });
  const output = 3 * 5 * 24 * 2;
  expect(parts.find(({ section }) => section === 'output')!.bytes).toBeGreaterThanOrEqual(output);
  expect(parts.map(({ section }) => section)).toEqual(
    expect.arrayContaining(['rounds', 'dispatched', 'combined', 'failure', 'experts', 'weights', 'output']),
  );
});

test('a name that no family has is told which there are', () => {
  expect(familyNamed('naive')).toBe(naive);
  expect(() => familyNamed('own')).toThrow("'naive'");
});
