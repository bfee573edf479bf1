import { readFileSync } from 'node:fs';
import { describe, expect, it, test, vi } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import { emptyTensor, MoeLayer, type MoeLayerOptions, readBits, type Tensor } from '../../src/moe/index.js';
import { profiles } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { deep, gptOss, plain, raceFree } from './layers.js';
import { liveMemory, withoutRoom } from './live-memory.js';
import { runLayer } from './run-layer.js';
import {
  compareLayer,
  type LayerInputs,
  makeLayer,
  placeRows,
  placeWeights,
  plainLayer,
} from './whole-layer.js';

test('memory is said before there is a layer', async () => {
  const inputs = makeLayer(deep, [2, 2], 5);
  const [memory] = await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const weights = placeWeights(world, world.device.createStream(), inputs);
    const layer = await MoeLayer.create(world, { model: deep, maxTokens: 1, rounds: 2, ...weights });
    await layer.dispose();
    return layer.memory;
  });
  const { bytes, parts } = MoeLayer.memory({ model: deep, maxTokens: 1, rounds: 2, ranks: 2 });
  expect(bytes).toBe(parts.reduce((sum, part) => sum + part.bytes, 0));
  const own = (all: typeof parts) => all.filter(({ section }) => section === null);
  expect(own(memory!.parts)).toEqual(own(parts));
  expect(own(parts).map(({ purpose }) => purpose)).toEqual([
    'router',
    'plan',
    'rows of experts',
    'shared expert',
  ]);
});

test('with cuBLAS every expert has room of its own, and gates lie beside what they scale', () => {
  const of = { model: deep, maxTokens: 3, ranks: 2 } as const;
  const rows = (options: object) =>
    MoeLayer.memory({ ...of, ...options }).parts.find(({ purpose }) => purpose === 'rows of experts')!.bytes;
  // Of 7 experts rank 0 has 4; 6 tokens come to each at most, of 12 routes.
  expect(rows({})).toBe(2 * 12 * (64 + 64));
  expect(rows({ gemm: 'cublas' })).toBe(2 * 4 * 6 * (64 + 3 * 64));
  expect(rows({ gemm: 'cublas', capacity: 5 })).toBe(2 * 4 * 5 * (64 + 3 * 64));
});

test.each(['one-sided', 'portable'])('rows of fp8 take less memory, carried by %s', (family) => {
  const memory = (rows: 'bf16' | 'fp8') =>
    MoeLayer.memory({ model: 'deepseek_v3', maxTokens: 128, ranks: 8, rows, family }).bytes;
  expect(memory('fp8')).toBeLessThan(memory('bf16'));
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
    if (model === 'deepseek_v3') {
      expect(page).toContain(row(128, 'MiB', ...memory(128)));
      expect(page).toContain(row('4096, capacity 65536', 'MiB', ...memory(4096, 2 * 4096 * topK)));
    }
    expect(page).toContain(row('weights', 'GiB', ...weights.map((gib) => gib.toFixed(1))));
  }
});

test.each([1, 2] as const)('a rank without experts brings tokens all the same: chunks %i', async (n) => {
  const inputs = makeLayer({ ...plain, experts: 2 }, [2, 1, 3], 4);
  const outs = await raceFree({ ranks: 3, seed: '4' }, async (world) => {
    const { device, rank } = world;
    const stream = device.createStream();
    const weights = placeWeights({ device, ranks: 3, rank: Math.min(rank, 1) }, stream, inputs);
    const none = {
      gateUp: emptyTensor(device, 'bf16', [0, 128, 64]),
      down: emptyTensor(device, 'bf16', [0, 64, 64]),
    };
    const layer = await MoeLayer.create(world, {
      ...{ model: inputs.model, maxTokens: 4 / n, rounds: n, ...weights },
      ...(rank === 2 && { experts: none }),
    });
    const { x, out } = placeRows(world, stream, inputs);
    layer.forward(x, out, stream, { chunks: n });
    await layer.synchronize(stream);
    const rows = layer.memory.parts.find(({ purpose }) => purpose === 'rows of experts')!;
    const capacity = n * 3 * (4 / n) * 2;
    expect(rows.bytes).toBe(capacity * 2 * (rank === 2 ? 64 : 128));
    await layer.dispose();
    return readBits(out, stream);
  });
  expect(compareLayer(64, outs, plainLayer(inputs))).toMatchObject({ different: 0 });
});

test.each([{ alignment: 3 }, { alignment: 16, capacity: 8 }])(
  'a plan that cannot be is refused before there is a window: %j',
  async (how) => {
    const inputs = makeLayer(plain, [1, 1], 4);
    await World.local({ ranks: 2, device: 'sim' }, async (world) => {
      const weights = placeWeights(world, world.device.createStream(), inputs);
      const options = { model: inputs.model, maxTokens: 4, ...weights, ...how } as MoeLayerOptions;
      const windows = vi.spyOn(world, 'createWindow');
      await expect(MoeLayer.create(world, options)).rejects.toThrow(ArgumentError);
      expect(windows).not.toHaveBeenCalled();
    });
  },
);

test.each(['logits', 'routes of rows', 'rows that experts made', 'inner rows'])(
  'a layer for which one rank has no room is refused on all, and leaves nothing: %s',
  async (missing) => {
    const inputs = makeLayer(deep, [2, 2], 5);
    await World.local({ ranks: 2, device: 'sim' }, async (world) => {
      const { device, rank } = world;
      const weights = placeWeights(world, device.createStream(), inputs);
      const create = () =>
        MoeLayer.create(world, { model: deep, maxTokens: 1, rounds: 2, waitMs: 1000, ...weights });
      const live = liveMemory(device);
      const restore = rank === 1 ? withoutRoom(device, missing) : () => {};
      await expect(create()).rejects.toThrow('no room');
      expect(live()).toBe(0);
      restore();
      await (await create()).dispose();
      expect(live()).toBe(0);
    });
  },
);

test('a token whose scores are all NaN goes nowhere and comes back as zeros; the others are as without it', async () => {
  const inputs = makeLayer(plain, [3], 9);
  const sick = inputs.routed.map(({ x, ...routed }) => {
    const rows = x.slice();
    rows[64 + 5] = Number.NaN;
    return { ...routed, x: rows };
  });
  const run = (of: LayerInputs) =>
    World.local({ ranks: 1, device: 'sim' }, (world) => runLayer(world, of, { maxTokens: 3 }));
  const [well, ill] = [await run(inputs), await run({ ...inputs, routed: sick })];
  const expected = well[0]!.out.slice();
  expected.fill(0, 64, 128);
  expect(ill[0]!.out).toEqual(expected);
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

  it.each<[string, (good: MoeLayerOptions) => object]>([
    [
      'experts.down is "bf16 [7, 128, 64]"; it must be bf16 [7, 64, 64], contiguous',
      ({ experts }) => ({ experts: { ...experts, down: experts.gateUp } }),
    ],
    ['sharedExperts is undefined', () => ({ sharedExperts: undefined })],
    ['sharedExperts is "given"; it must be absent', () => ({ model: { ...deep, sharedInner: undefined } })],
    ['profile is "gpt-7"; it must be one of deepseek_v3', () => ({ model: 'gpt-7' })],
    [
      'router.weights is "bf16 [6, 64]"; it must be bf16 or f32 [7, 64], contiguous',
      ({ router }) => ({ router: { weights: as(router.weights, { shape: [6, 64], bytes: 768 }) } }),
    ],
    ['model.inner is 96; it must be a multiple of 64', () => ({ model: { ...deep, inner: 96 } })],
    ['model.hidden is 72; it must be a multiple of 64', () => ({ model: { ...deep, hidden: 72 } })],
    ['model.sharedInner is 32; it must be a multiple of 64', () => ({ model: { ...deep, sharedInner: 32 } })],
    ['topK is 8; it must be an integer from 1 to 7', () => ({ model: { ...deep, topK: 8 } })],
    ['rounds is 3; it must be an integer from 1 to 2', () => ({ rounds: 3 })],
    ['maxTokens is 0; it must be an integer from 1', () => ({ maxTokens: 0 })],
    ["rows is \"fp4\"; it must be one of 'bf16', 'fp8'", () => ({ rows: 'fp4' })],
    ["model.hidden is 64; it must be a multiple of 128, because rows are 'fp8'", () => ({ rows: 'fp8' })],
    [
      "rows is \"fp8\"; it must be 'bf16' with gemm 'cublas'",
      () => ({ model: { ...deep, hidden: 128 }, rows: 'fp8', gemm: 'cublas' }),
    ],
    [
      'experts.downBias is "given"; it must be absent: the model has no `biases`',
      ({ experts }) => ({ experts: { ...experts, downBias: experts.down } }),
    ],
    [
      'experts.gateUpBias is undefined; it must be a tensor: the model has `biases`',
      () => ({ model: { ...deep, biases: true } }),
    ],
    [
      'experts.activation is "clamped-swiglu"; it must be \'swiglu\', which the model has',
      ({ experts }) => ({ experts: { ...experts, activation: 'clamped-swiglu' } }),
    ],
    [
      "model.activation is \"relu\"; it must be one of 'swiglu', 'clamped-swiglu'",
      () => ({ model: { ...deep, activation: 'relu' } }),
    ],
    ['model.biases is 1', () => ({ model: { ...deep, biases: 1 } })],
    [
      'gemm is "cublas"; it must be \'heddle\', because experts have biases or a clamped SwiGLU',
      () => ({ model: gptOss, gemm: 'cublas' }),
    ],
    ['gemm is "by hand"; it must be one of', () => ({ gemm: 'by hand' })],
    ['gemm is "cublas"; it must be \'heddle\' on a', () => ({ gemm: 'cublas' })],
    ['options.microbatches is 2; it must be left out', () => ({ microbatches: 2 })],
    ['family is "smoke"; it must be one of \'one-sided\'', () => ({ family: 'smoke' })],
  ])('%s', async (message, change) => {
    await expect(create(change)).rejects.toThrow(message);
  });

  it('a proxy around a world', async () => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const weights = placeWeights(world, world.device.createStream(), inputs);
      const wrapped = new Proxy(world, {});
      await expect(MoeLayer.create(wrapped, { model: deep, maxTokens: 2, ...weights })).rejects.toThrow(
        'world is World; it must be what World.local or World.join gives',
      );
    });
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
        'chunks is 1; it must be at least 2, the same number on every rank: 3 tokens are more than maxTokens, 2 a round',
      );
      expect(() => layer.forward(rows(2), rows(1), stream)).toThrow(
        'out is "bf16 [1, 64]"; it must be bf16 [2, 64]',
      );
      expect(() => layer.forward(rows(2, 'f32'), rows(2), stream)).toThrow('x is "f32 [2, 64]"');
      const both = rows(2);
      for (const out of [both, { ...both, data: both.data + 128 }])
        expect(() => layer.forward(both, out, stream)).toThrow('it must be memory that does not overlap x');
      await layer.dispose();
      await layer.dispose();
      expect(() => layer.forward(rows(2), rows(2), stream)).toThrow('this MoeLayer was disposed');
    });
  });
});
