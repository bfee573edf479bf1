import { readFileSync } from 'node:fs';
import { describe, expect, it, test } from 'vitest';
import { families } from '../../src/kernels/index.js';
import { type Bits, type MoeModel, profiles } from '../../src/layer/index.js';
import { emptyTensor, MoeLayer, type MoeLayerOptions, type Tensor } from '../../src/moe/index.js';
import { formatFinding, SimMachine } from '../../src/sim/index.js';
import {
  compareLayer,
  type LayerInputs,
  makeLayer,
  placeWeights,
  plainLayer,
  runLayer,
} from '../../src/testing/index.js';
import { World } from '../../src/world/index.js';

/** DeepSeek-V3's in small: groups, a correction, a shared expert. */
const deep: MoeModel = {
  ...{ hidden: 64, experts: 7, topK: 2, inner: 64, sharedInner: 128 },
  routing: { scores: 'sigmoid', normalise: true, scale: 2.5 },
};
/** Mixtral's in small. */
const plain: MoeModel = {
  ...{ hidden: 64, experts: 4, topK: 2, inner: 64 },
  routing: { scores: 'softmax', normalise: true, scale: 1 },
};

type How = Partial<Pick<MoeLayerOptions, 'family' | 'overlap' | 'microBatches' | 'alignment' | 'capacity'>>;

/** Two forwards under a random schedule of the checked machine; what it found, and what each rank got. */
async function forwards(inputs: LayerInputs, how: How, graph = false) {
  const ranks = inputs.routed.length;
  const maxTokens = Math.max(...inputs.routed.map(({ x }) => x.length / inputs.model.hidden));
  // A family between nodes has one rank in each.
  const nodes = how.family === 'hybrid' ? ranks : 1;
  const machine = SimMachine.create({ ranks, mode: 'checked', schedule: 'random', seed: '7' });
  const runs = await World.local({ ranks, nodes, device: 'sim', sim: machine }, (world) =>
    runLayer(world, inputs, { maxTokens, ...how }, { times: 2, graph }),
  );
  return { runs, outs: runs.map(({ out }) => out), findings: machine.findings.map(formatFinding) };
}

describe.each(families.map(({ name }) => name))('carried by %s', (family) => {
  const deepInputs = makeLayer(deep, [3, 2], 1);
  const plainInputs = makeLayer(plain, [1, 3, 2], 2);
  const expected = new Map<LayerInputs, Bits[]>();

  it.each<[string, LayerInputs, How]>([
    ['one phase after another', deepInputs, { overlap: false }],
    ['the shared expert while rows travel', deepInputs, {}],
    ['two micro-batches', deepInputs, { microBatches: 2, alignment: 16 }],
    ['no shared expert, uneven ranks', plainInputs, {}],
    ['no shared expert, two micro-batches', plainInputs, { microBatches: 2 }],
  ])('a layer is what plain code makes of it, and races with nothing: %s', async (_, inputs, how) => {
    if (!expected.has(inputs)) expected.set(inputs, plainLayer(inputs));
    const { outs, findings } = await forwards(inputs, { family, ...how });
    expect(findings).toEqual([]);
    expect(compareLayer(inputs.model.hidden, outs, expected.get(inputs)!)).toMatchObject({ different: 0 });
  });
});

test('a graph of a forward gives the same bits, with micro-batches too', async () => {
  const inputs = makeLayer(deep, [3, 2], 3);
  for (const how of [{ overlap: false }, {}, { microBatches: 2 }] as const) {
    const { outs } = await forwards(inputs, how);
    const captured = await forwards(inputs, how, true);
    expect(captured.findings).toEqual([]);
    expect(captured.outs).toEqual(outs);
  }
});

test('a layer says which family carries it, and why', async () => {
  const inputs = makeLayer(plain, [1, 1], 4);
  const chosen = (await forwards(inputs, {})).runs[0]!.layer;
  expect(chosen.family).toBe('one-sided');
  expect(chosen.why).toBe('2 ranks of one node: ranks that share NVLink store into each other’s windows');
  const named = (await forwards(inputs, { family: 'portable' })).runs[0]!.layer;
  expect([named.family, named.why]).toEqual(['portable', 'asked for']);
});

test('memory is said before there is a layer', async () => {
  const inputs = makeLayer(deep, [2, 2], 5);
  const [run] = (await forwards(inputs, { microBatches: 2 })).runs;
  const { layer } = run!;
  const { bytes, parts } = MoeLayer.memory({ model: deep, maxTokens: 2, microBatches: 2, ranks: 2 });
  expect(bytes).toBe(parts.reduce((sum, part) => sum + part.bytes, 0));
  const own = (all: typeof parts) => all.filter(({ section }) => section === null);
  expect(own(layer.memory.parts)).toEqual(own(parts));
  expect(own(parts).map(({ purpose }) => purpose)).toEqual([
    'router',
    'plan',
    'rows of experts',
    'shared expert',
  ]);
});

test('the table of docs/moe-layer.md is what the function says', () => {
  const page = readFileSync(new URL('../../docs/moe-layer.md', import.meta.url), 'utf8');
  const eps = [4, 8, 16, 32, 64];
  const names = { deepseek_v3: 'DeepSeek-V3', kimi_k2: 'Kimi-K2' } as const;
  for (const model of ['deepseek_v3', 'kimi_k2'] as const) {
    const { experts, hidden, inner, topK } = profiles[model];
    const memory = (maxTokens: number, capacity?: number) =>
      eps.map((ranks) => {
        const { bytes } = MoeLayer.memory({ model, maxTokens, ranks, ...(capacity && { capacity }) });
        return Math.round(bytes / 2 ** 20);
      });
    const weights = eps.map((ranks) => ((experts / ranks) * 6 * hidden * inner) / 2 ** 30);
    const row = (...cells: readonly unknown[]) => `| ${[names[model], ...cells].join(' | ')} |`;
    expect(page).toContain(row(128, 'MiB', ...memory(128)));
    expect(page).toContain(row('4096, capacity 65536', 'MiB', ...memory(4096, 2 * 4096 * topK)));
    expect(page).toContain(row('weights', 'GiB', ...weights.map((gib) => gib.toFixed(1))));
  }
});

describe('what cannot work is refused', () => {
  const inputs = makeLayer(deep, [2], 6);
  const create = (change: (good: MoeLayerOptions) => object) =>
    World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const weights = placeWeights(world, world.device.createStream(), inputs);
      const good: MoeLayerOptions = { model: deep, maxTokens: 2, ...weights };
      await MoeLayer.create(world, { ...good, ...change(good) });
    });
  const as = (tensor: Tensor, change: Partial<Tensor>): Tensor => ({ ...tensor, ...change });

  it.each<[string, (good: MoeLayerOptions) => object, string]>([
    [
      'weights of a wrong shape',
      ({ experts }) => ({ experts: { ...experts, down: experts.gateUp } }),
      'experts.down is "bf16 [7, 128, 64]"; it must be bf16 [7, 64, 64], contiguous',
    ],
    [
      'weights of a wrong type',
      ({ experts }) => ({ experts: { ...experts, down: as(experts.down, { dtype: 'f16' }) } }),
      'experts.down is "f16 [7, 64, 64]"; it must be bf16 [7, 64, 64], contiguous',
    ],
    [
      'no shared expert where there is one',
      () => ({ sharedExperts: undefined }),
      'sharedExperts is undefined',
    ],
    [
      'a shared expert where there is none',
      () => ({ model: { ...deep, sharedInner: undefined } }),
      'sharedExperts is "given"; it must be absent',
    ],
    [
      'a model that nobody knows',
      () => ({ model: 'gpt-7' }),
      'profile is "gpt-7"; it must be one of deepseek_v3',
    ],
    [
      'sizes that do not divide',
      () => ({ model: { ...deep, inner: 96 } }),
      'model.inner is 96; it must be a multiple of 64',
    ],
    ['capacity 0', () => ({ capacity: 0 }), 'capacity is 0; it must be an integer from 1 to'],
    [
      'an alignment that does not exist',
      () => ({ alignment: 8 }),
      'alignment is 8; it must be one of 1, 16, 64, 128',
    ],
    ['more micro-batches', () => ({ microBatches: 3 }), 'microBatches is 3; it must be 1 or 2'],
    [
      'fewer tokens than micro-batches',
      () => ({ maxTokens: 1, microBatches: 2 }),
      'maxTokens is 1; it must be an integer from 2',
    ],
    [
      'a family that nobody knows',
      () => ({ family: 'smoke' }),
      'family is "smoke"; it must be one of \'one-sided\'',
    ],
  ])('%s', async (_, change, message) => {
    await expect(create(change)).rejects.toThrow(message);
  });

  it('more experts than the plan can hold', () => {
    const model = { ...plain, experts: 4096 };
    expect(() => MoeLayer.memory({ model, maxTokens: 1, ranks: 2 })).toThrow(
      'experts is 4096; it must be at most 1024',
    );
  });

  it('tensors that do not fit, and a layer that is gone', async () => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const { device } = world;
      const stream = device.createStream();
      const layer = await MoeLayer.create(world, {
        model: deep,
        maxTokens: 2,
        ...placeWeights(world, stream, inputs),
      });
      const rows = (tokens: number, dtype: 'bf16' | 'f32' = 'bf16') =>
        emptyTensor(device, dtype, [tokens, 64]);
      expect(() => layer.forward(rows(3), rows(3), stream)).toThrow(
        'x is "bf16 [3, 64]"; it must be bf16 [at most 2, 64]',
      );
      expect(() => layer.forward(rows(2), rows(1), stream)).toThrow(
        'out is "bf16 [1, 64]"; it must be bf16 [2, 64]',
      );
      expect(() => layer.forward(rows(2, 'f32'), rows(2), stream)).toThrow('x is "f32 [2, 64]"');
      await layer.dispose();
      await layer.dispose();
      expect(() => layer.forward(rows(2), rows(2), stream)).toThrow('this MoeLayer was disposed');
    });
  });
});
