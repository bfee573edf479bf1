import { describe, expect, it, test } from 'vitest';
import { World } from '../../src/net/world/index.js';
import { deep, forwards, gptOss, type How, plain } from './layers.js';
import { type LayerRun, runLayer } from './run-layer.js';
import { compareLayer, type LayerInputs, makeLayer, plainLayer } from './whole-layer.js';

const deepInputs = makeLayer(deep, [3, 2], 1);
const plainInputs = makeLayer(plain, [1, 3, 2], 2);
const fourInputs = makeLayer(deep, [2, 1, 0, 2], 8);
const gptOssInputs = makeLayer(gptOss, [2, 3], 3);
const expected = new Map(
  [deepInputs, plainInputs, fourInputs, gptOssInputs].map((inputs) => [inputs, plainLayer(inputs)]),
);

async function expectPlain(
  inputs: LayerInputs,
  how: How,
  on: Parameters<typeof forwards>[2] = {},
): Promise<LayerRun> {
  const { runs, outs } = await forwards(inputs, how, { mode: 'fast', ...on });
  expect(compareLayer(inputs.model.hidden, outs, expected.get(inputs)!)).toMatchObject({ different: 0 });
  return runs[0]!;
}

/** What the layer does by itself, whoever carries it. The race detector sees its kernels in test/moe/layer-buffers.e2e.test.ts, by each family. */
const once: readonly [string, LayerInputs, How][] = [
  ['four chunks, one in flight', deepInputs, { chunks: 4 }],
  ['no shared expert, uneven ranks', plainInputs, {}],
  ['one phase after another', deepInputs, { overlap: false }],
  ['no shared expert, three chunks', plainInputs, { rounds: 2, chunks: 3 }],
  ["gpt-oss's experts", gptOssInputs, {}],
  [
    'portable, rows that begin at 16',
    deepInputs,
    { family: 'portable', rounds: 2, chunks: 2, alignment: 16 },
  ],
];

it.each(once)('a layer is what plain code makes of it: %s', async (_, inputs, how) => {
  await expectPlain(inputs, how);
});

test('between 2 nodes of 2 ranks the layer itself chooses hybrid, and says why, and why not another', async () => {
  const how = { rounds: 2, chunks: 2, alignment: 16 } as const;
  const { layer } = await expectPlain(fourInputs, how, { nodes: 2 });
  expect(layer.family).toBe('hybrid');
  expect(layer.why).toMatch(/^4 ranks of 2 nodes: NVLink inside a node; between nodes .*; not one-sided: /);
});

describe('rows that travel as fp8', () => {
  const inputs = makeLayer({ ...deep, hidden: 128 }, [3, 2], 10);
  const expected = plainLayer(inputs, 'fp8');

  it.each<[string, How, number]>([
    ['one-sided', {}, 1],
    ['portable', { rounds: 2, chunks: 2 }, 1],
    ['hybrid', { overlap: false }, 2],
  ])('are rounded once, for routed experts only, carried by %s: %j', async (family, how, nodes) => {
    const mode = family === 'one-sided' ? 'checked' : 'fast';
    const { outs, findings } = await forwards(inputs, { family, rows: 'fp8', ...how }, { nodes, mode });
    expect(findings).toEqual([]);
    expect(compareLayer(128, outs, expected)).toMatchObject({ different: 0 });
    expect(compareLayer(128, outs, plainLayer(inputs)).different).toBeGreaterThan(0);
  });
});

describe('weights of e4m3', () => {
  const model = { ...deep, hidden: 128, inner: 128, sharedInner: 128 };
  const inputs = makeLayer(model, [3, 2], 11, 'fp8');
  // Not on the checked machine, which takes a hundred times as long: test/moe/experts-mlp.test.ts has its kernels there.
  const run = (how: How, nodes: number) =>
    World.local({ ranks: 2, nodes, device: 'sim' }, (world) =>
      runLayer(world, inputs, { maxTokens: 3, ...how }, { times: 2 }),
    );

  it.each<[string, How, number]>([
    ['one-sided', {}, 1],
    ['hybrid', { rounds: 2, chunks: 2 }, 2],
  ])('routed experts and the shared one, carried by %s: %j', async (family, how, nodes) => {
    const runs = await run({ family, rows: 'fp8', ...how }, nodes);
    const outs = runs.map(({ out }) => out);
    expect(compareLayer(128, outs, plainLayer(inputs, 'fp8'))).toMatchObject({ different: 0 });
    expect(
      compareLayer(128, outs, plainLayer(makeLayer(model, [3, 2], 11), 'fp8')).different,
    ).toBeGreaterThan(0);
  });

  it('want rows of fp8', async () => {
    await expect(run({}, 1)).rejects.toThrow(
      'rows is "bf16"; it must be \'fp8\', because the weights are e4m3',
    );
  });
});

/** Chunks in flight as a graph: test/moe/layer-buffers.e2e.test.ts. */
test('a graph of a forward gives the same bits', async () => {
  await expectPlain(deepInputs, {}, { graph: true });
});

test('a layer says which family carries it, and why', async () => {
  const inputs = makeLayer(plain, [1, 1], 4);
  const carried = async (how: How) => (await forwards(inputs, how, { mode: 'fast' })).runs[0]!.layer;
  const chosen = await carried({});
  expect(chosen.family).toBe('one-sided');
  expect(chosen.why).toBe('2 ranks of one node: ranks that share NVLink store into each other’s windows');
  const named = await carried({ family: 'portable' });
  expect([named.family, named.why]).toEqual(['portable', 'asked for']);
});
