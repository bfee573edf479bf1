/** Router weights that combine applies. test/suite/cases.ts has whole rounds of it. */
import { describe, expect, test } from 'vitest';
import { familyNamed, refusalOf } from '../../../src/moe/families/index.js';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  ExpertsPlan,
  emptyTensor,
  readBits,
  row,
  tensorFrom,
} from '../../../src/moe/index.js';
import type { Bits } from '../../../src/moe/layer/index.js';
import { layerOf } from '../../../src/moe/rounds/options.js';
import { World } from '../../../src/net/world/index.js';
import {
  compareRounds,
  expectedRound,
  makeSources,
  type RoundsOptions,
  type RoundsShape,
  randomElements,
  runRounds,
  shapeOfRounds,
} from '../../../src/verify/testing/index.js';
import { targetOn } from './target.js';

/** Weights that products and sums treat in special ways stand among the ordinary ones. */
const special = [0, -0, -1, 1e-40, -3.5, 3e38];

test.each<[RoundsOptions, Partial<RoundsShape>, number?]>([
  [{}, {}],
  [{}, { dtype: 'f16' }],
  [{}, { dtype: 'f32' }],
  [{}, { combineFormat: 'e4m3', hidden: 144 }],
  [{}, { weighting: 'source' }],
  [{ family: 'portable' }, {}],
  [{ family: 'hybrid' }, {}, 2],
])('special weights give the bits of the reference: %j, %j', async (options, change, nodes = 1) => {
  const layer = { ranks: 4, experts: 12, topK: 4, maxTokens: 3, hidden: 24, dtype: 'bf16' } as const;
  const shape = shapeOfRounds({ ...layer, weighting: 'plan', ...change });
  const sources = makeSources(shape, 3, 1).map((source, rank) => ({
    ...source,
    topkWeights: source.topkWeights!.map((weight, i) =>
      i % 3 === 0 ? special[(i / 3 + rank) % 6]! : weight,
    ),
  }));
  const results = await World.local({ ranks: 4, nodes, device: 'sim' }, (world) =>
    runRounds(world, shape, [sources], options),
  );
  const expected = expectedRound(shape, sources, true, nodes);
  expect(compareRounds(shape, [sources], results, [expected])).toMatchObject({ different: 0 });
});

const alone = <T>(program: (world: World) => Promise<T>): Promise<T[]> =>
  World.local({ ranks: 1, device: 'sim' }, program);

describe('a combine that takes the rows of a plan', () => {
  const layer: ExpertParallelOptions = {
    ...{ experts: 4, topK: 2, maxTokens: 5 },
    ...{ payloads: { x: row('bf16', 8) }, output: row('bf16', 8) },
  };
  const sources = makeSources(
    shapeOfRounds({ ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 5, hidden: 8 }, dtype: 'bf16' }),
    5,
    3,
  );

  test('gives the bits of reduce before combine, where some routes find no room', async () => {
    await World.local({ ranks: 2, device: 'sim' }, async (world) => {
      const stream = world.device.createStream();
      const { topkIds, topkWeights, payloads } = sources[world.rank]!;
      const sums: Bits[] = [];
      for (const weighting of ['experts', 'plan'] as const) {
        const ep = await ExpertParallel.create(world, { ...layer, weighting });
        const plan = await ExpertsPlan.create(ep, { capacity: 7 });
        const bits = randomElements('bf16', plan.rows * 8, 11 + world.rank, 6);
        const rows = tensorFrom(world.device, stream, bits, 'bf16', [plan.rows, 8]);
        const out = emptyTensor(world.device, 'bf16', [5, 8]);
        const received = ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads }, stream);
        plan.plan(received, stream);
        if (weighting === 'experts') plan.reduce(received, rows, stream);
        ep.combine(out, stream, weighting === 'plan' ? plan.made(rows) : undefined);
        expect((await plan.sizes(stream)).overflow).toBeGreaterThan(0);
        await ep.synchronize(stream);
        sums.push(await readBits(out, stream));
        plan.dispose();
        await ep.dispose();
      }
      expect(sums[1]).toEqual(sums[0]);
    });
  });

  test('refuses rows that lack or lie otherwise, and the round goes on', async () => {
    await alone(async (world) => {
      const stream = world.device.createStream();
      const ep = await ExpertParallel.create(world, { ...layer, weighting: 'plan' });
      const plan = await ExpertsPlan.create(ep);
      const rows = emptyTensor(world.device, 'bf16', [plan.rows, 8]);
      const out = emptyTensor(world.device, 'bf16', [1, 8]);
      const inputs = { topkIds: Int32Array.of(2, 0), topkWeights: Float32Array.of(1, 1) };
      const received = ep.dispatch({ ...inputs, payloads: { x: new Uint8Array(16) } }, stream);
      plan.plan(received, stream);
      stream.fill(rows.data, rows.bytes, 0);
      const made = plan.made(rows);
      expect(received.output.bytes).toBe(0);
      expect(() => ep.combine(out, stream)).toThrow('made is undefined; it must be rows of a plan');
      for (const name of ['rows', 'scatter', 'weights'] as const)
        expect(() => ep.combine(out, stream, { ...made, [name]: out.data })).toThrow(`made.${name}`);
      expect(() => plan.reduce(received, rows, stream)).toThrow('weighting is "plan"; it must be');
      expect(() => plan.made(out)).toThrow('rows is');
      ep.combine(out, stream, made);
      await ep.synchronize(stream);
      await ep.dispose();
      const other = await ExpertParallel.create(world, layer);
      const theirs = await ExpertsPlan.create(other);
      expect(() => theirs.made(rows)).toThrow("it must be 'plan'");
      other.dispatch({ ...inputs, payloads: { x: new Uint8Array(16) } }, stream);
      expect(() => other.combine(out, stream, made)).toThrow("it must be absent, unless weighting is 'plan'");
    });
  });

  test('is refused where no row may travel for each route', () => {
    const refused = (family: string, change: Partial<ExpertParallelOptions> = {}) =>
      refusalOf(
        familyNamed(family),
        layerOf(2, { ...layer, weighting: 'source', ...change }),
        targetOn([0, 0]),
      )?.message;
    expect(refused('one-sided')).toBeUndefined();
    expect(refused('portable')).toContain("family 'portable', which adds up rows before they are home");
    expect(refused('hybrid')).toContain('so it carries no invariant layer');
    expect(refused('one-sided', { output: row('bf16', 5) })).toContain('output.length is 5');
    expect(refused('one-sided', { output: row('bf16', 16), combineFormat: 'e4m3' })).toContain(
      'combineFormat is "e4m3"; it must be \'rows\'',
    );
  });

  test('is refused to a family whose combine takes none', () => {
    const shape = layerOf(1, { ...layer, weighting: 'plan' });
    const family = { ...familyNamed('one-sided'), can: ['masks'] as const };
    expect(refusalOf(family, shape, targetOn([0]))?.message).toContain(
      'whose combine takes no rows of a plan',
    );
  });
});

const options: ExpertParallelOptions = {
  ...{ experts: 4, topK: 3, maxTokens: 2, payloads: { x: row('bf16', 8) }, output: row('f32', 4) },
  weighting: 'plan',
};

describe('an ExpertParallel whose combine applies the weights', () => {
  test('takes rows that lie at each route’s own index: a scatter that is the identity needs no plan', async () => {
    await alone(async (world) => {
      const ep = await ExpertParallel.create(world, options);
      const stream = world.device.createStream();
      const inputs = {
        topkIds: Int32Array.of(2, -1, 0),
        topkWeights: Float32Array.of(0.5, 100, -2),
        payloads: { x: new Uint8Array(16) },
      };
      const received = ep.dispatch(inputs, stream);
      const routes = [1, 2, 3];
      const scatter = Int32Array.of(0, -1, 2, -1, -1, -1); // the token's routes that arrived
      const weights = emptyTensor(world.device, 'f32', routes);
      stream.copy(weights.data, received.weights!.data, weights.bytes);
      // The row of a route that did not arrive holds anything.
      const rows = new Float32Array(6 * 4).fill(Number.NaN);
      rows.set([2, 4, 6, 8], 0);
      rows.set([1, 1, 1, -0.25], 2 * 4);
      const made = {
        rows: tensorFrom(world.device, stream, rows, 'f32', [6, 4]),
        scatter: tensorFrom(world.device, stream, scatter, 'i32', routes),
        weights,
      };
      const out = emptyTensor(world.device, 'f32', [1, 4]);
      ep.combine(out, stream, made);
      await ep.synchronize(stream);
      expect(await readBits(out, stream)).toEqual(Float32Array.of(-1, 0, 1, 4.5));
      await ep.dispose();
    });
  });
});
