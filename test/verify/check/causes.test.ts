/** Findings become causes: rules of GPUs, and changes that make them disappear, are tried. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { runCheck } from '../../../src/cli/check.js';
import type { SimMachine } from '../../../src/gpu/sim/index.js';
import { type PtxProgram, ptx } from '../../../src/lang/index.js';
import {
  type CheckOptions,
  type CheckSubject,
  check,
  formatCause,
  mutantsOf,
  mutate,
  WrongResult,
} from '../../../src/verify/check/index.js';
import { lineMarked, nvccPtx } from '../../gpu/sim/ptx/nvcc.js';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root } from '../../tree.js';
import { ringConfiguration, ringKernel } from './ring.js';

const source = join(root, 'test/verify/check/causes.cu');
const lineOf = (mark: string): number => lineMarked(source, mark);

describe('causes of findings in PTX', needing('nvcc'), () => {
  const folder = temporaryFolder();
  let program: PtxProgram;

  beforeAll(() => {
    program = ptx(readFileSync(nvccPtx(source, join(folder, 'causes.ptx')), 'utf8'), 'causes.ptx');
  });

  /** Each rank has data that its stream wrote before, and a box to which the other writes. */
  function subjectOf(name: string, grid: number, first: number | null): CheckSubject {
    const all = (name === 'unreleased' ? [name, 'behind'] : [name]).map((one) =>
      program.kernel(one, { params: ['data', 'mine', 'peer', 'out'] }),
    );
    const ranks = grid > 1 || ['roles', 'refilled'].includes(name) ? 1 : 2;
    const run = async (machine: SimMachine): Promise<void> => {
      const devices = Array.from({ length: ranks }, (_, rank) => machine.device(rank));
      const data = devices.map((device) => device.allocateWindow(128, 'data').address);
      const boxes = devices.map((device) => device.allocateWindow(512, 'box').address);
      const one = async (rank: number): Promise<void> => {
        const other = (rank + 1) % ranks;
        const stream = devices[rank]!.createStream();
        const out = devices[rank]!.allocateWindow(512, 'out').address;
        const block = { waits: 1, roles: 128 }[name] ?? 32;
        stream.copyIn(data[rank]!, new Uint8Array(128).fill(1));
        const values = { data: data[other]!, mine: boxes[rank]!, peer: boxes[other]!, out };
        for (const kernel of all) {
          const launcher = (await devices[rank]!.load(kernel)).launcher({ grid, block, rank });
          for (const [param, value] of Object.entries(values)) launcher.set(param, value);
          launcher.launch(stream);
        }
        stream.copyIn(data[rank]!, new Uint8Array(128).fill(2));
        const [word] = new Uint32Array((await stream.copyOut(out, 4)).slice().buffer);
        if (first !== null && word !== first) throw new WrongResult(`${name}: ${word}`);
      };
      await Promise.all(devices.map((_, rank) => one(rank)));
    };
    return { name, kernels: [name], configurations: [{ name, ranks, run }] };
  }

  const causesOf = async (subject: CheckSubject, options: CheckOptions = {}) =>
    (await check([subject], { seeds: 20, ...options })).causes;

  test.each([
    ['boundary', 'launches', 1, null, 'a launch begins and ends with a fence'],
    ['fenced', 'barriers', 1, null, 'behind a barrier, before the stores of all its threads'],
    ['counter', 'places', 3, null, 'who has seen an atomic’s value stores behind it'],
    ['guide', 'volatile', 3, 3, 'loads so behind what its block has seen'],
    ['packet', 'vectors', 1, 100, 'the two halves of this v2 came apart'],
    ['waits', 'volatile', 1, null, 'to PTX that load acquires nothing'],
  ] as const)('%s is by the letter alone: %s', async (name, rule, grid, first, words) => {
    const subject = subjectOf(name, grid, first);
    const causes = await causesOf(subject);
    expect(causes).toMatchObject([{ rules: [rule], mend: null }]);
    const text = formatCause(causes[0]!);
    expect(text).toMatch(/^By the letter: /);
    expect(text).toContain(words);
    expect(await causesOf(subject, { assume: [rule] })).toEqual([]);
    for (const letter of [false, true])
      expect((await runCheck([subject], [], { seeds: 4, workers: 1, ...(letter && { letter }) })).clean).toBe(
        !letter,
      );
  });

  test('an ordinary store races with atomics that its thread has not seen', async () => {
    expect(await causesOf(subjectOf('careless', 3, null))).toMatchObject([{ rules: [], mend: null }]);
  });

  test('a race by the letter does not hide a wrong result', async () => {
    const causes = await causesOf(subjectOf('counter', 3, 99));
    expect(causes.map(({ rules, findings }) => [...rules, ...findings.map(({ kind }) => kind)])).toEqual([
      ['wrong-result'],
      ['places', 'race'],
    ]);
  });

  test.each([
    ['early', 4],
    ['reused', 3],
  ])(
    'in %s, launched in a wrong shape, all else stands behind the finding that says so',
    async (name, more) => {
      const [cause, ...others] = await causesOf(subjectOf(name, 4, null));
      expect(others).toEqual([]);
      expect(formatCause(cause!)).toMatch(
        new RegExp(`is the launch right, .*\n.*\n  ${more} more may come of it:\n    \\w+: causes\\.cu:`),
      );
    },
  );

  test('a misuse explains the waits behind it', async () => {
    const [cause, ...others] = await causesOf(subjectOf('overfull', 1, null));
    expect([cause!.findings.map(({ kind }) => kind), others]).toEqual([['misuse', 'stuck-wait'], []]);
  });

  test.each<[string, string, CheckOptions]>([
    ['stores before a flag that releases nothing race with the launches behind it', 'unreleased', {}],
    ['without the fence a flag behind a barrier is a race', 'unfenced', { assume: ['barriers'] }],
  ])('%s', async (_, name, options) => {
    const causes = await causesOf(subjectOf(name, 1, null), options);
    const mend = expect.stringMatching(/^__threadfence_system\(\) before /);
    expect(causes).toMatchObject([{ rules: [], mend }]);
  });

  test('a release and an acquire that are both missing are tried together', async () => {
    const causes = await causesOf(subjectOf('unordered', 1, null));
    const [before, after] = [lineOf('release'), lineOf('release') + 1];
    expect(causes).toHaveLength(1);
    expect(causes[0]!.mend).toMatch(
      new RegExp(
        `^__threadfence_system\\(\\) before causes\\.cu:${before}:5 and __threadfence_system\\(\\) after causes\\.cu:${after}:`,
      ),
    );
  });

  test('an acquire that is missing behind a fence of all is found in 20 schedules, with the fence that mends it', async () => {
    const causes = await causesOf(subjectOf('last', 3, null));
    expect(causes).toMatchObject([
      { rules: [], mend: expect.stringMatching(/^__threadfence\(\) after causes\.cu:\d+/) },
    ]);
    expect(causes[0]!.mend).toContain(`:${lineOf('acquire')}:`);
  });

  test('a counter that neither releases nor acquires wants a fence on both sides, however many blocks count in between', async () => {
    const [cause, ...others] = await causesOf(subjectOf('bare', 4, null));
    expect([cause!.rules, others]).toEqual([[], []]);
    const at = `causes\\.cu:${lineOf('acquire')}:\\d+(, inlined at [^ ]*)?`;
    expect(cause!.mend).toMatch(
      new RegExp(`^__threadfence\\(\\) before ${at} and __threadfence\\(\\) after ${at}$`),
    );
  });

  test.each([
    ['unmet', 2, 'grid', 'a wait for all blocks (this_grid().sync(), a counter)'],
    ['roles', 1, 'group', 'a wait for the others of the block (a named barrier, an mbarrier)'],
    ['refilled', 1, 'stage', '__syncthreads()'],
    ['reused', 1, 'box', 'a wait for the other ranks (a flag that each raises when it is done)'],
  ])('%s lacks one wait, which is one cause', async (name, grid, mark, what) => {
    const causes = await causesOf(subjectOf(name, grid, null));
    const mend = expect.stringContaining(`${what} before causes.cu:${lineOf(mark)}:`);
    expect(causes).toMatchObject([{ rules: [], mend }]);
  });

  test('all findings of one missing barrier have one cause, with the line before which it belongs', async () => {
    const causes = await causesOf(subjectOf('early', 1, null));
    expect(causes).toMatchObject([{ rules: [], mend: expect.stringMatching(/^__syncthreads\(\) before /) }]);
    expect(causes[0]!.findings.length).toBeGreaterThan(1);
    expect(causes[0]!.mend).toContain(`causes.cu:${lineOf('meet')}:`);
    const { text, clean } = await runCheck([subjectOf('early', 1, null)], [], { seeds: 20, workers: 1 });
    expect(clean).toBe(false);
    expect(text).toMatch(/They have 1 cause\./);
    expect(text).toMatch(
      /tried: with __syncthreads\(\) before causes\.cu:\d+:\d+ all \d+ findings disappear/,
    );
  });
});

test.each([
  ['release → relaxed', 'store', /^g\.fence\('sys'\) before \S*ring\.ts:\d+:\d+$/],
  ['sys → gpu', 'store', /^sys scope at .*ring\.ts:\d+:\d+$/],
  ['barrier removed', 'barrier', /^g\.barrier\(\) before \S*ring\.ts:\d+:\d+$/],
])('in TypeScript what mends %s is tried, too', async (description, text, mend) => {
  const kernel = ringKernel(2, { waitsUntilTaken: true });
  const module = kernel.ir();
  const mutant = mutantsOf(module).find((one) => one.description === description && one.text.includes(text))!;
  const wrong = { ...kernel, ir: () => mutate(module, mutant) };
  const subject = { name: 'ring', kernels: ['ring'], configurations: [ringConfiguration(wrong, 2, 3)] };
  const { causes } = await check([subject], { seeds: 10 });
  expect(causes[0]).toMatchObject({ rules: [], mend: expect.stringMatching(mend) });
});

test('wrong results that differ in numbers alone are one finding', async () => {
  const ring = ringConfiguration(ringKernel(2, { waitsUntilTaken: true }), 2, 3);
  const run = async (machine: SimMachine): Promise<void> => {
    await ring.run(machine);
    throw new WrongResult(`out[0] is ${machine.seed.length / 10}, not ${/\d/.exec(machine.seed)}`);
  };
  const configurations = ['one', 'other'].map((name) => ({ ...ring, name, run }));
  const { causes } = await check([{ name: 'ring', kernels: ['ring'], configurations }], { seeds: 4 });
  expect(causes.map(({ findings }) => findings.length)).toEqual([1, 1]);
});
