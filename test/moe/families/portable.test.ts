/** What is the portable family's alone: its memory, its refusals, its counting of messages. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ArgumentError, UnavailableError } from '../../../src/base/errors.js';
import { effectsOf, foreignSources } from '../../../src/lang/index.js';
import { portable, type Step, transports } from '../../../src/moe/families/index.js';
import type { Layer } from '../../../src/moe/layer/index.js';
import { runOnce } from '../../../src/verify/check/run.js';
import { givenRows } from '../../../src/verify/check/subjects/given-rows.js';
import { expectReference } from '../../suite/cases.js';
import { deepSeek, targetOn } from './target.js';

const targetOf = (nodes: readonly number[]) => targetOn(nodes, { split: true });
const target = targetOf(new Array(8).fill(0));

const planBytes = (layer: Layer): number =>
  portable
    .plan(layer, target, portable.defaults(layer, target))
    .windows.reduce((sum, { layout }) => sum + layout.bytes, 0);

test('DeepSeek-V3, 128 tokens on 8 ranks, takes 37 MB a rank; slots for every expert would take 0.94 GB', () => {
  expect(Math.round(planBytes(deepSeek) / 1e6)).toBe(37);
  // What comes to a rank where slots are experts': for each of its experts the tokens of all ranks, and for each of its
  // tokens a row of every expert; both in bf16, without what a sender packs.
  const { experts, ranks, maxTokens, output } = deepSeek;
  const received = (experts / ranks) * ranks * maxTokens * output.hidden * 2;
  const home = experts * maxTokens * output.hidden * 2;
  expect(Math.round((received + home) / 1e7)).toBe(94);
});

describe('the portable family refuses', () => {
  const refusal = (layer: Partial<Layer>, parts = 1) => {
    const launch = { blocks: 1, threads: 32, parts };
    return portable.refuses({ ...deepSeek, ...layer }, target, { dispatch: launch, combine: launch });
  };

  test('ranks of several nodes, over windows', () => {
    const apart = portable.refuses(deepSeek, targetOf([0, 0, 0, 0, 1, 1, 1, 1]));
    expect(apart).toBeInstanceOf(UnavailableError);
    expect(apart!.message).toContain('this world has 2');
  });

  test('rows as e4m3 that are not a multiple of 16 elements', () => {
    const output = { ...deepSeek.output, combineFormat: 'e4m3', hidden: 7160 } as const;
    expect(refusal({ output })).toMatchObject({ message: expect.stringContaining('output.length is 7160') });
  });

  test('fewer multiprocessors than its blocks; its defaults fit', () => {
    const few = { ...target, sms: 4 };
    expect(portable.refuses(deepSeek, few, portable.defaults(deepSeek, target))!.message).toContain(
      'at most sms, 4',
    );
    expect(portable.refuses(deepSeek, few, portable.defaults(deepSeek, few))).toBeNull();
    expect(portable.refuses(deepSeek, { ...target, sms: 1 })!.message).toContain(
      'sms is 1; it must be at least 2',
    );
  });

  test('more messages in a round than a signal counts', () => {
    const payloads = ['a', 'b', 'c', 'd'].map((name) => ({ name, rowBytes: 16 * 1024 }));
    const refused = refusal({ payloads, ranks: 4, maxTokens: 2 ** 19 }, 1024);
    expect(refused).toBeInstanceOf(ArgumentError);
    expect(refused!.message).toMatch(/^tuning.dispatch.parts is 1024; it must be so few/);
    expect(refusal({ payloads, ranks: 4, maxTokens: 2 ** 19 }, 512)).toBeNull();
  });
});

test.each(transports)('sends hold no wait but for the launch before them, over %s', (transport) => {
  const { phases } = portable.plan(deepSeek, { ...target, transport }, portable.defaults(deepSeek, target));
  const waits = (steps: readonly Step[]) =>
    steps.flatMap(({ kernel }) => effectsOf(kernel.ir()).map(({ effect }) => effect.op)).filter(isWait);
  expect(waits([...phases.dispatchSend, ...phases.combineSend])).toEqual([]);
  expect(waits(phases.dispatchRecv)).not.toEqual([]);
  expect(waits(phases.combineRecv)).not.toEqual([]);
});

test('over NVSHMEM the window lies in its heap, and only what sends calls it', () => {
  const { windows, phases } = portable.plan(
    deepSeek,
    { ...target, transport: 'nvshmem' },
    portable.defaults(deepSeek, target),
  );
  expect(windows.map(({ symmetric }) => symmetric)).toEqual([true]);
  const linked = (steps: readonly Step[]) =>
    steps.map(({ kernel }) => [...foreignSources(kernel.ir())].map(({ name }) => name));
  expect(linked(phases.dispatchSend)).toEqual([['NVSHMEM']]);
  expect(linked(phases.dispatchRecv)).toEqual([[]]);
  expect(linked(phases.combineSend)).toEqual([['NVSHMEM']]);
  // The meeting's signals.
  expect(linked(phases.combineRecv)).toEqual([['NVSHMEM']]);
});

const isWait = (op: string): boolean => op.startsWith('await') && op !== 'awaitPrevious';

const spreads = fc.record({
  blocks: fc.integer({ min: 1, max: 4 }),
  threads: fc.constantFrom(32, 64, 96),
  parts: fc.integer({ min: 1, max: 5 }),
});

test('rounds of any shape and spread give the reference’s bits, free of races', async () => {
  const layers = fc
    .record({
      ranks: fc.integer({ min: 1, max: 4 }),
      experts: fc.integer({ min: 4, max: 9 }),
      topK: fc.integer({ min: 1, max: 4 }),
      maxTokens: fc.integer({ min: 1, max: 3 }),
      units: fc.integer({ min: 1, max: 70 }),
      dtype: fc.constantFrom('bf16', 'f16', 'f32'),
      weighting: fc.constantFrom('experts', 'plan'),
      combineFormat: fc.constantFrom('rows', 'e4m3'),
      extra: fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 3 }),
    })
    .map(({ units, ...of }) => ({
      ...of,
      // Wide rows of many ranks take a minute.
      hidden: of.combineFormat === 'e4m3' ? 16 * Math.ceil(of.ranks > 2 ? units / 7 : units) : units,
    }));
  const options = fc.record({
    tuning: fc.record({ dispatch: spreads, combine: spreads }),
    counts: fc.boolean(),
    split: fc.boolean(),
    transport: fc.constantFrom('windows', 'nvshmem'),
  });
  await fc.assert(
    fc.asyncProperty(layers, options, (layer, more) =>
      expectReference({ family: 'portable', checked: true, ...layer, ...more }),
    ),
    { seed: 2026_11, numRuns: 8 },
  );
});

/** Nothing but the meeting at a round's end keeps the next round's routes from slots that are still read. */
test.each(transports)('ranks that bring no tokens meet in each round, over %s', async (transport) => {
  const ranks = 2;
  await expectReference({
    ...{ ranks, experts: ranks, topK: 1, maxTokens: 1, family: 'portable', transport, checked: true },
    tokens: Array.from({ length: 6 }, () => [0, 0]),
  });
});

test('over NVSHMEM rows stay the caller’s until combine: a kernel that writes them again behind dispatch is found', async () => {
  const launch = { blocks: 2, threads: 32, parts: 1 };
  const tuning = { dispatch: launch, combine: launch };
  const carrier = { family: 'portable', transport: 'nvshmem', tuning } as const;
  const [early] = givenRows('early', () => carrier, { reusedBehind: 'dispatch' });
  const found = (await runOnce(early!, { seed: '0', schedule: 'random' })).findings;
  expect(found).toContainEqual(
    expect.objectContaining({
      kind: 'race',
      buffer: 'x',
      first: expect.objectContaining({ kernel: 'the network', kind: 'read' }),
      second: expect.objectContaining({ kernel: 'write_again' }),
      hint: expect.stringContaining('what the network still needs'),
    }),
  );
});
