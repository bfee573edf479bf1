import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  emptyTensor,
  type RoutedModel,
  Router,
  read,
  Scratch,
  type Tensor,
  tensorFrom,
} from '../../src/moe/index.js';
import { profiles, type Routing } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import {
  compareRouted,
  expectedRoutes,
  makeRouted,
  type RoutedInputs,
  type RoutedOptions,
  routedTolerance,
  runRouter,
} from '../../src/verify/trials/index.js';
import { liveMemory, withoutRoom } from './live-memory.js';

const softmax: Routing = { scores: 'softmax', normalise: true, scale: 1 };
const plain: RoutedModel = { hidden: 64, experts: 12, topK: 3, routing: softmax };

async function onGpu<T>(body: (world: World) => Promise<T>): Promise<T> {
  const [result] = await World.local({ ranks: 1, device: 'sim' }, body);
  return result!;
}

const routesOf = (inputs: RoutedInputs) => onGpu((world) => runRouter(world, inputs));

async function expectReference(options: RoutedOptions): Promise<void> {
  const inputs = makeRouted(options);
  const expected = expectedRoutes(inputs);
  expect(compareRouted(options.model, await routesOf(inputs), expected)).toMatchObject({ different: 0 });
}

const models: fc.Arbitrary<RoutedModel> = fc
  .record({
    hidden: fc.integer({ min: 1, max: 40 }).map((units) => units * 8),
    groups: fc.integer({ min: 1, max: 8 }),
    size: fc.integer({ min: 1, max: 12 }),
    top: fc.integer({ min: 1, max: 8 }),
    topK: fc.integer({ min: 1, max: 8 }),
    scores: fc.constantFrom<Routing['scores']>('softmax', 'sigmoid'),
    normalise: fc.boolean(),
    scale: fc.constantFrom(1, 2.5),
  })
  .map(({ hidden, groups, size, top, topK, ...routing }) => {
    const kept = Math.min(top, groups);
    return {
      ...{ hidden, experts: groups * size, topK: Math.min(topK, kept * size) },
      routing: { ...routing, groups: { count: groups, top: kept } },
    };
  });

test('experts and weights are those of the reference', async () => {
  const features = fc.record({
    weights: fc.constantFrom<'bf16' | 'f32'>('bf16', 'f32'),
    bias: fc.boolean(),
    correction: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(
      ...([models, features, fc.integer({ min: 1, max: 9 }), fc.nat(10_000)] as const),
      async (model, has, tokens, seed) => {
        const inputs = makeRouted({ model, tokens, seed, ...has });
        const expected = expectedRoutes(inputs);
        fc.pre(expected.margin >= routedTolerance);
        const found = compareRouted(model, await routesOf(inputs), expected);
        expect(found).toMatchObject({ different: 0 });
      },
    ),
    { seed: 2026_15, numRuns: 10 },
  );
});

test('a token has the same weights, bit for bit, among few tokens and among many', async () => {
  const model = { hidden: 200, experts: 20, topK: 5, routing: softmax };
  const many = makeRouted({ model, tokens: 40, seed: 11 });
  const few = { ...many, x: many.x.slice(0, 7 * model.hidden) };
  const [ofMany, ofFew] = [await routesOf(many), await routesOf(few)];
  expect(ofFew.topkIds).toEqual(ofMany.topkIds.slice(0, 7 * model.topK));
  expect(ofFew.topkWeights).toEqual(ofMany.topkWeights.slice(0, 7 * model.topK));
});

it.each(Object.entries(profiles))('routes as %s does', async (_, { experts, topK, routing }) => {
  await expectReference({
    model: { hidden: 64, experts, topK, routing },
    tokens: 5,
    seed: 3,
    correction: true,
  });
});

/** Routes of tokens with these logits: rows that pick out one weight each. */
async function withLogits(routing: Routing, topK: number, logits: readonly number[]) {
  const weights = Float32Array.from(logits.flatMap((logit) => [logit, 0, 0, 0, 0, 0, 0, 0]));
  const model = { hidden: 8, experts: logits.length, topK, routing };
  const { topkIds, topkWeights } = await routesOf({
    ...{ model, dtype: 'f32', x: Float32Array.of(1, 0, 0, 0, 0, 0, 0, 0), weights },
  });
  return { ids: [...topkIds], weights: [...topkWeights] };
}

test('of equal scores the smaller id’s comes first', async () => {
  const { ids } = await withLogits(softmax, 4, [1, 3, 1, 3, 3, 1]);
  expect(ids).toEqual([1, 3, 4, 0]);
  const logits = Array.from({ length: 40 }, () => 1);
  expect((await withLogits(softmax, 3, logits)).ids).toEqual([0, 1, 2]);
  expect((await withLogits({ ...softmax, groups: { count: 4, top: 2 } }, 3, logits)).ids).toEqual([0, 1, 2]);
});

test('softmax of logits that lie far apart is 1 and 0', async () => {
  // Two of them are one lane's, the larger one first.
  const logits = [200, ...Array<number>(39).fill(0)];
  expect(await withLogits({ ...softmax, normalise: false }, 2, logits)).toEqual({
    ids: [0, 1],
    weights: [1, 0],
  });
});

describe('an expert whose score is NaN', () => {
  const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;

  it('is never chosen: what is left over goes nowhere, with weight 0', async () => {
    for (const scores of ['softmax', 'sigmoid'] as const) {
      const routed = await withLogits({ ...softmax, scores }, 3, [nan, 0, nan, 0]);
      expect(routed.ids).toEqual([1, 3, -1]);
      expect(routed.weights).toEqual([0.5, 0.5, 0]);
    }
  });

  it('does not count in its group', async () => {
    const routing: Routing = { ...softmax, scores: 'sigmoid', groups: { count: 2, top: 1 } };
    const { ids } = await withLogits(routing, 2, [5, nan, 5, nan, 1, 1, 1, 1]);
    expect(ids).toEqual([0, 2]);
    // With one score less than are added up, groups are as bad as they can be, and alike.
    expect((await withLogits(routing, 1, [1, nan, 5, nan])).ids).toEqual([0]);
  });

  it('is every expert’s where softmax meets an infinity', async () => {
    const { ids, weights } = await withLogits(softmax, 2, [1, infinity, 2]);
    expect(ids).toEqual([-1, -1]);
    expect(weights).toEqual([0, 0]); // not −0
  });
});

describe('what cannot work is refused', () => {
  const create = (model: object, change: (weights: Tensor) => object = (weights) => ({ weights })) =>
    onGpu(async (world) => {
      const weights = emptyTensor(world.device, 'bf16', [plain.experts, plain.hidden]);
      await Router.create(world, { ...plain, ...model }, change(weights) as { weights: Tensor }, 4);
    });
  const groups = (count: number, top: number) => ({ routing: { ...softmax, groups: { count, top } } });

  it.each<[object, string]>([
    [{ hidden: 60 }, 'hidden is 60; it must be a multiple of 8'],
    [{ experts: 1025 }, 'experts is 1025; it must be an integer from 1 to 1024'],
    [{ topK: 3n }, 'topK is 3n; it must be an integer from 1 to 12: a number, not a bigint'],
    ...[Number.NaN, Number.POSITIVE_INFINITY, 0, -1, 1e300, 1e-300, 2n].map((scale): [object, string] => [
      { routing: { ...softmax, scale } },
      'it must be a finite number above 0',
    ]),
    [{ routing: { ...softmax, normalise: 1n } }, 'routing.normalise is 1n; it must be true or false'],
    [{ topK: 13 }, 'topK is 13; it must be an integer from 1 to 12'],
    [
      { routing: { ...softmax, scores: 'relu' } },
      "routing.scores is \"relu\"; it must be one of 'softmax', 'sigmoid'",
    ],
    [groups(5, 2), 'routing.groups.count is 5; it must be a divisor of experts, 12'],
    [groups(6, 1), 'routing.groups.top is 1; it must be enough groups for 3 experts'],
    [{ experts: 13 }, 'router.weights is "bf16 [12, 64]"; it must be bf16 or f32 [13, 64], contiguous'],
  ])('%o', async (model, message) => {
    await expect(create(model)).rejects.toThrow(message);
  });

  it('biases of another type or length', async () => {
    await expect(create({}, (weights) => ({ weights, bias: weights }))).rejects.toThrow(
      'router.bias is "bf16 [12, 64]"; it must be f32 [12], contiguous',
    );
  });

  it('rows that do not fit', async () => {
    await onGpu(async (world) => {
      const { device } = world;
      const weights = emptyTensor(device, 'bf16', [plain.experts, plain.hidden]);
      const router = await Router.create(world, plain, { weights }, 4);
      const stream = device.createStream();
      for (const x of [emptyTensor(device, 'bf16', [5, 64]), emptyTensor(device, 'f32', [4, 64])])
        expect(() => router.route(x, stream)).toThrow('it must be bf16 [at most 4, 64], contiguous');
      router.dispose();
      router.dispose();
      expect(() => router.route(emptyTensor(device, 'bf16', [1, 64]), stream)).toThrow(
        'this Router was disposed',
      );
    });
  });
});

test('fewer tokens than there is room for are routed by themselves', async () => {
  const inputs = makeRouted({ model: plain, tokens: 2, seed: 8 });
  const expected = expectedRoutes(inputs);
  await onGpu(async (world) => {
    const { device } = world;
    const stream = device.createStream();
    const weights = tensorFrom(device, stream, inputs.weights, 'bf16', [12, 64]);
    const router = await Router.create(world, plain, { weights }, 7);
    const { topkIds } = router.route(tensorFrom(device, stream, inputs.x, 'bf16', [2, 64]), stream);
    expect(await read(topkIds, stream)).toEqual(expected.topkIds);
  });
});

test('a router whose memory is not to be had leaves nothing', () =>
  onGpu(async (world) => {
    const { device } = world;
    const inputs = makeRouted({ model: plain, tokens: 2, seed: 3 });
    const weights = tensorFrom(device, device.createStream(), inputs.weights, 'bf16', [12, 64]);
    const live = liveMemory(device);
    for (const missing of ['logits', 'ids of routes', 'weights of routes']) {
      const restore = withoutRoom(device, missing);
      await expect(Router.create(world, plain, { weights }, 7)).rejects.toThrow('no room');
      expect(live()).toBe(0);
      restore();
    }
    // The memory of others stays theirs.
    const scratch = new Scratch(device);
    const other = await Router.create(world, plain, { weights }, 4, scratch);
    const before = live();
    const restore = withoutRoom(device, 'logits');
    await expect(Router.create(world, plain, { weights }, 7, scratch)).rejects.toThrow('no room');
    expect(live()).toBe(before);
    restore();
    other.dispose();
    scratch.dispose();
    expect(live()).toBe(0);
  }));
