/** A new family is a folder and a line: whatever takes a family by its name takes this one, which src does not know. */
import './own-family/line.js';

import { readdirSync } from 'node:fs';
import { describe, expect, onTestFinished, test } from 'vitest';
import { heddle } from '../../../src/cli/program.js';
import { kernel, pointer } from '../../../src/lang/index.js';
import { familyNamed, loadStep } from '../../../src/moe/families/index.js';
import { ExpertParallel, fp8, row } from '../../../src/moe/index.js';
import { World } from '../../../src/net/world/index.js';
import { check, checkSubjects } from '../../../src/verify/check/index.js';
import { familyShape } from '../../../src/verify/kernels/index.js';
import { forget, hear, out } from '../../cli/said.js';
import { type Case, expectReference } from '../../suite/cases.js';
import { temporaryFolder } from '../../temporary.js';
import { naive } from './own-family/family.js';

const layer: Case = {
  ...{ ranks: 3, experts: 7, topK: 4, maxTokens: 5, hidden: 24, extra: [1, 6, 33] },
  ...{ family: 'naive', checked: true },
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
  test.each<[string, Case]>([
    ['full rounds', {}],
    ['rows of odd length', { hidden: 7 }],
    ['f32', { dtype: 'f32' }],
    ['no weights', { weights: false }],
    ['more threads', { tuning: { dispatch: { threads: 256 }, combine: { threads: 64 } } }],
    ['ranks that bring nothing, routes to nobody', { tokens: uneven, routes: { holes: 0.5 } }],
  ])('as the reference: %s', (_, change) => expectReference({ ...layer, ...change }));
});

test.each([
  [
    { onLoss: 'mask' },
    `onLoss is "mask"; it must be 'throw' with family 'naive', which leaves no rank out: ask for 'portable'`,
  ],
  [{ waits: true }, "waits is true; it must be false with family 'naive', which does not count them"],
  [
    { payloads: { x: fp8('bf16', 128) } },
    `payloads.x.rounds is "e4m3"; it must be left out with family 'naive', whose dispatch rounds no rows: bring e4m3`,
  ],
] as const)('what a family does not say that it can it refuses: %j', async (asked, message) => {
  const create = World.local({ ranks: 1, device: 'sim' }, (world) =>
    ExpertParallel.create(world, { ...options, ...asked }),
  );
  await expect(create).rejects.toThrow(message);
});

describe('commands take it', () => {
  hear();

  test('emit lists and prints its kernels, for shapes with its knobs', async () => {
    expect(await heddle(['emit', '--list'])).toBe(0);
    expect(out).toMatch(/^naive_dispatch +stores rows to the ranks/m);
    expect(out).toMatch(/^naive_combine +meets all/m);
    forget();
    expect(await heddle(['emit', 'naive_combine', '--shape', 'ranks=4,combine.threads=64'])).toBe(0);
    expect(out).toMatch(/naive_combine\w*\(/);
  });

  test('check runs it in what is checked of every family, as far as it carries that', async () => {
    expect(await heddle(['check', 'naive', '--list', '--json'])).toBe(0);
    const { subjects } = JSON.parse(out) as { subjects: { configurations: { name: string }[] }[] };
    const names = subjects.flatMap(({ configurations }) => configurations.map(({ name }) => name));
    const some = ['2 ranks', 'a graph, replayed', 'a rank lost in combine'].map((name) => `naive, ${name}`);
    expect(names).toEqual(expect.arrayContaining(some));
    // It says that it carries neither.
    expect(names.filter((name) => /split|groups|nodes|e4m3|weighs/.test(name))).toEqual([]);
    forget();
    expect(await heddle(['check', 'naive', '--seeds', '1', '--workers', '1'])).toBe(0);
    expect(out).toMatch(/: no finding\n/);
  });

  test('check catches mistakes where its ranks meet', async () => {
    const meeting = /, (2 ranks|a graph, replayed)$/;
    const subjects = checkSubjects.map((subject) => ({
      ...subject,
      configurations: subject.configurations.filter(({ name }) => meeting.test(name)),
    }));
    const options = { only: ['naive'], seeds: 1, mutants: true, schedulesPerMutant: 2 };
    const { mutants } = await check(subjects, options);
    expect(mutants.total).toBeGreaterThan(30);
    const survivors = mutants.survivors.map(({ id }) => id);
    expect(survivors.filter((id) => /meet\.ts.*(release|acquire)/.test(id))).toEqual([]);
  });

  test('bench, export and plan take its name', async () => {
    const bench = ['bench', '--device', 'sim', '--family', 'naive', '--ep', '2', '--tokens', '2', '--json'];
    expect(await heddle(bench)).toBe(0);
    expect(JSON.parse(out).points[0]).toHaveProperty('tuning.dispatch.threads', 128);
    const folder = temporaryFolder(onTestFinished);
    const shape = ['--shape', 'ranks=4,dispatch.threads=64'];
    expect(await heddle(['export', 'naive', '--arch', 'none', '--out', folder, ...shape])).toBe(0);
    expect(readdirSync(folder)).toEqual(expect.arrayContaining(['plan.json', 'naive_dispatch.cu']));
    forget();
    expect(await heddle(['plan', '--ep', '8', '--family', 'naive', '--tokens', '8'])).toBe(0);
    expect(out).toMatch(/^8 +naive \* +\d/m);
    expect(out).toMatch(/^\* naive: a prediction, no measurement/m);
  });

  test.each(['bench', 'export', 'tune', 'plan'])('%s --help names it', async (command) => {
    expect(await heddle([command, '--help'])).toBe(0);
    expect(out).toMatch(/portable"?,\s+"?naive/);
  });

  test('doctor says that the simulator runs it', async () => {
    expect(await heddle(['doctor'])).toBe(0);
    expect(out).toMatch(/Simulator: .*portable, naive/);
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
  const { tuning } = familyShape(naive, { ranks: 3, 'dispatch.threads': 64 }, { split: false, sms: null });
  expect(tuning).toEqual({ dispatch: { threads: 64 }, combine: { threads: 128 } });
  expect(() => familyShape(naive, { 'dispatch.blocks': 2 }, { split: false, sms: null })).toThrow(
    'dispatch.blocks',
  );
});

test('a parameter that no step sets is refused before any round', async () => {
  const stray = kernel({ name: 'stray', params: { win: pointer('u32'), many: 'u32' } }, (g, { win, many }) =>
    g.store(win.at(0), many),
  );
  const step = { kernel: stray, summary: 'stores', blocks: 1, threads: 32, bindings: { win: 0 } };
  const [device] = await World.local({ ranks: 1, device: 'sim' }, async ({ device }) => device);
  const placed = { rank: 0, limit: 1, window: () => ({ rank: 0, bases: [], bytes: 0 }), address: () => 0 };
  await expect(loadStep(step, device!, placed)).rejects.toThrow(
    /^a parameter of stray is "many"; it must be one that its step sets: limit, tokens, .*, win$/,
  );
});

test.each([
  [{ split: true }, 'split is true'],
  [{ counts: true }, 'counts is true'],
  [{ weighting: 'plan' }, "it must be 'experts'"],
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
