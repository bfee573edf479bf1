/** Launches where there are few multiprocessors, or where they may take few. */
import { describe, expect, test } from 'vitest';
import { dynamicSharedBytes } from '../../../src/lang/index.js';
import { mlpKernels } from '../../../src/moe/experts/index.js';
import { families, oneSided, type PlanTarget } from '../../../src/moe/families/index.js';
import type { Layer } from '../../../src/moe/layer/index.js';
import { topologyOf } from '../../../src/net/world/index.js';
import { deepSeek, targetOn } from './target.js';

const layer: Layer = {
  ...{ ...deepSeek, ranks: 4, replicas: 1, maxTokens: 2048 },
  payloads: [{ name: 'x', rowBytes: 7168 }],
};
const target = targetOn([0, 0, 0, 0], { sms: 16 });

const groups = { ...layer, replicas: 2 };
const narrow = { ...layer, output: { ...layer.output, combineFormat: 'e4m3' } } as const;
const small = { ...layer, maxTokens: 128 };
const planned = { ...layer, output: { ...layer.output, weighting: 'plan' } } as const;
/** A token has two rows at most. */
const pair = { ...small, ranks: 2 };
const two = { topology: topologyOf([0, 0], 0) };

test.each<[string, Layer, Partial<PlanTarget>, object]>([
  ['pull, on all of them', layer, {}, { way: 'pull', blocks: 16 }],
  [
    'push where links bound, one block apart',
    layer,
    { sms: 32 },
    { way: 'push', blocks: 31, teams: 4, parts: 2 },
  ],
  ['pull small rounds all the same', small, { sms: 32 }, { way: 'pull', blocks: 32 }],
  [
    'push where nobody may wait at the head',
    layer,
    { split: true },
    { way: 'push', blocks: 15, teams: 4, parts: 4 },
  ],
  [
    'push narrower pieces of small rounds',
    small,
    { split: true },
    { way: 'push', blocks: 15, teams: 4, parts: 4 },
  ],
  ['pull no more parts than there are rows', pair, two, { way: 'pull', parts: 2 }],
  ['push no more parts than there are rows', pair, { ...two, split: true }, { way: 'push', parts: 2 }],
  ['push where ranks hand each other sums', groups, {}, { way: 'push', blocks: 15 }],
  [
    'push in teams of whole warps what it makes of a plan’s rows',
    planned,
    { split: true },
    { way: 'push', threads: 448, teams: 2 },
  ],
  ['push rows as e4m3', narrow, {}, { way: 'push', blocks: 15 }],
])('%s', (_, layer, differences, combine) => {
  const where = { ...target, ...differences };
  const tuning = oneSided.defaults(layer, where);
  expect(tuning.combine).toMatchObject(combine);
  expect(oneSided.refuses(layer, where, tuning)).toBeNull();
  expect(() => oneSided.plan(layer, where, tuning)).not.toThrow();
});

test.each([layer, small])('dispatch takes the parameters of the next smaller power of two (%#)', (layer) => {
  const dispatchOn = (sms: number) => oneSided.defaults(layer, { ...target, sms }).dispatch;
  for (let sms = 8; sms < 64; sms += 1)
    expect(dispatchOn(sms)).toEqual(dispatchOn(2 ** (31 - Math.clz32(sms))));
  expect(dispatchOn(32).blocks).toBe(32);
});

test('a tuning that was measured pulling pushes where phases are split', () => {
  const pulling = oneSided.defaults(layer, target);
  expect(pulling.combine.way).toBe('pull');
  const split = { ...target, split: true, sms: null };
  const tuning = oneSided.adapt(pulling, layer, split);
  expect(tuning.combine.way).toBe('push');
  expect(oneSided.refuses(layer, split, tuning)).toBeNull();
});

test('more blocks than there may be are refused, whatever combine’s way', () => {
  const { dispatch, combine } = oneSided.defaults(layer, target);
  const refused = (way: 'pull' | 'push', blocks: number) =>
    oneSided.refuses(layer, target, { dispatch, combine: { ...combine, way, blocks } })?.message ?? '';
  expect(refused('pull', 16)).toBe('');
  expect(refused('pull', 17)).toContain('at most sms, 16');
  expect(refused('push', 15)).toBe('');
  expect(refused('push', 16)).toContain('less than sms, 16');
});

test.each([
  [[8, 0], 0],
  [[9, 0], 224 * 1024],
] as const)(
  'a pull has rows of two tokens a team in shared memory, where blocks have so much: %j',
  (capability, bytes) => {
    const where = targetOn([0, 0], { sms: 8, capability });
    const { phases } = oneSided.plan(pair, where, oneSided.defaults(pair, where));
    expect(dynamicSharedBytes(phases.combineSend.at(-1)!.kernel.ir().shared)).toBe(bytes);
  },
);

const rounded = { ...layer, payloads: [{ name: 'x', rowBytes: 3584, rounded: 'e4m3' }] } as const;
test.each<[string, Layer, Partial<PlanTarget>, boolean]>([
  ['so many multiprocessors at most', layer, {}, true],
  ['all multiprocessors', layer, { sms: null }, false],
  ['more multiprocessors', layer, { sms: 33 }, false],
  ['a host that only launches', layer, { copies: false }, false],
  ['ranks that share tokens', groups, {}, false],
  ['few tokens', { ...layer, maxTokens: 64 }, {}, false],
  ['rows that dispatch rounds', rounded, {}, false],
])('whether the host copies rows that stay at home: %s', (_, layer, differences, copied) => {
  const where = { ...target, copies: true, ...differences };
  expect(oneSided.plan(layer, where, oneSided.defaults(layer, where)).copied).toBe(copied);
});

describe.each(families)('$name, by the rules of thumb', (family) => {
  const nodes = family.name === 'hybrid' ? [0, 0, 1, 1] : [0, 0, 0, 0];
  const blocksOn = (multiprocessors: number, maxTokens: number): number[] => {
    const tuning = family.defaults({ ...layer, maxTokens }, targetOn(nodes, { multiprocessors }));
    return Object.values(tuning).map(({ blocks }) => Number(blocks));
  };

  test('launches no more than two blocks on each multiprocessor that is there', () => {
    for (const multiprocessors of [16, 78, 132, 148])
      for (const maxTokens of [1, 16, 64, 256, 1024, 4096])
        expect(Math.max(...blocksOn(multiprocessors, maxTokens))).toBeLessThanOrEqual(2 * multiprocessors);
  });

  test('keeps all of a larger GPU busy with many tokens', () => {
    expect(Math.min(...blocksOn(148, 4096))).toBeGreaterThan(Math.min(...blocksOn(132, 4096)));
  });
});

test.each([16, 132, 148])(
  'experts’ GEMMs stay on each of %i multiprocessors, on none twice',
  (multiprocessors) => {
    const of = { of: 'plan', dtype: 'bf16', experts: 8, hidden: 256, inner: 256, topK: 8 } as const;
    for (const rows of [16, 512]) {
      const { gateUp, down } = mlpKernels({ ...of, rows, kind: 'cuda', multiprocessors });
      for (const { blocks, resident } of [gateUp, down]) expect(blocks).toBe(multiprocessors * resident);
    }
  },
);
