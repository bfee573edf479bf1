import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { families } from '../../src/moe/families/index.js';
import {
  ExpertParallel,
  ExpertsPlan,
  type ExpertsPlanOptions,
  emptyTensor,
  readBits,
  tensorFrom,
  wrap,
} from '../../src/moe/index.js';
import {
  alignments,
  type Bits,
  bitsOf,
  expertForms,
  expertsOf,
  type Layer,
  reference,
  type Source,
  toF32,
} from '../../src/moe/layer/index.js';
import type { World } from '../../src/net/world/index.js';
import {
  layerOf,
  makeSources,
  type RoundsShape,
  type RoutesOptions,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';
import { comparePlan, runPlan } from '../../src/verify/trials/index.js';
import { raceFree } from './layers.js';
import { liveMemory, withoutRoom } from './live-memory.js';
import { type Arrived, withReceived } from './received.js';

const small: RoundsShape = {
  ...{ ranks: 2, experts: 6, topK: 3, maxTokens: 5, hidden: 8 },
  ...{ dtype: 'bf16', extra: [12] },
};

/** What `rank` of a layer receives in a round whose routes follow from the seed. */
function arrived(shape: RoundsShape, rank: number, seed: number, routes: RoutesOptions = {}) {
  const layer: Layer = { ...shapeOfRounds(shape), weights: true, counts: false };
  const sources = makeSources(layer, layer.maxTokens, seed, routes);
  return { layer, rank, received: reference.dispatch(layer, sources, rank) };
}

const planOf = (of: Arrived, how: ExpertsPlanOptions = {}) =>
  withReceived(of, (receiving) => runPlan(receiving, how));

const layers: fc.Arbitrary<RoundsShape> = fc
  .record({
    ranks: fc.integer({ min: 1, max: 5 }),
    experts: fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 80 })),
    topK: fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 32 })),
    maxTokens: fc.integer({ min: 1, max: 12 }),
    hidden: fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constantFrom(8, 64, 264)),
    dtype: fc.constantFrom('bf16' as const, 'f16' as const, 'f32' as const),
    extra: fc.array(fc.integer({ min: 1, max: 50 }), { maxLength: 2 }),
  })
  .map((of) => ({ ...of, topK: Math.min(of.topK, of.experts) }));
const routings: fc.Arbitrary<RoutesOptions> = fc.record({
  router: fc.constantFrom<NonNullable<RoutesOptions['router']>>(
    { kind: 'uniform' },
    { kind: 'repeated' },
    { kind: 'one-rank', target: 0 },
    { kind: 'zipf', exponent: 1 },
  ),
  holes: fc.constantFrom(0, 0.4, 1),
});
const ways: fc.Arbitrary<ExpertsPlanOptions> = fc
  .record({
    form: fc.constantFrom(...expertForms),
    alignment: fc.constantFrom(...alignments),
    /** In multiples of the alignment; 0 for the default. */
    capacity: fc.nat(4),
  })
  .map(({ form, alignment, capacity }) => ({
    ...{ form, alignment },
    ...(capacity > 0 && { capacity: capacity * alignment }),
  }));

test('plan, expand and reduce give what the reference gives, bit by bit', async () => {
  await fc.assert(
    fc.asyncProperty(
      ...([layers, routings, ways, fc.boolean(), fc.nat(1000)] as const),
      async (shape, routes, how, weights, seed) => {
        const of = arrived(shape, seed % shape.ranks, seed, routes);
        const layer = { ...of.layer, weights };
        const result = await planOf({ ...of, layer }, how);
        expect(comparePlan(layer, of.rank, of.received, how, result)).toMatchObject({ different: 0 });
      },
    ),
    { seed: 2026_11, numRuns: 16 },
  );
});

test('a plan without overflow is a permutation: each route that is here has one row, in order for each expert', async () => {
  await fc.assert(
    fc.asyncProperty(
      ...([layers, fc.constantFrom(...alignments), fc.nat(1000)] as const),
      async (shape, alignment, seed) => {
        const of = arrived(shape, 0, seed);
        const { first, count } = expertsOf(of.layer, 0);
        const { experts } = of.received;
        const { sizes, scatter, routes } = await planOf(of, { alignment });
        expect(sizes.overflow).toBe(0);
        const here = [...experts.keys()].filter((route) => experts[route]! >= 0);
        expect([...scatter.keys()].filter((route) => scatter[route]! >= 0)).toEqual(here);
        expect(here.map((route) => routes[scatter[route]!])).toEqual(here);
        for (let e = 0; e < count; e++) {
          const start = sizes.offsets[e]!;
          expect(start % alignment).toBe(0);
          const own = routes.slice(start, start + sizes.counts[e]!);
          expect(own).toEqual(own.slice().sort()); // source, token, k
          expect([...own].every((route) => experts[route] === first + e)).toBe(true);
        }
      },
    ),
    { seed: 2026_12, numRuns: 10 },
  );
});

test.each(expertForms)('%s: expand, then reduce with weights 1/k, gives every token back', async (form) => {
  // A power of two, so that no step rounds.
  const of = arrived({ ...small, experts: 4, topK: 4, ranks: 1, dtype: 'f32' }, 0, 5, {
    router: { kind: 'repeated' },
  });
  const weights = new Float32Array(of.received.weights.length).fill(1 / 4);
  // Every token names one expert four times.
  const { reduced } = await planOf({ ...of, received: { ...of.received, weights } }, { form });
  expect(toF32('f32', reduced)).toEqual(toF32('f32', bitsOf('f32', of.received.payloads.x!)));
});

describe('whole rounds', () => {
  const shape: RoundsShape = { ...small, ranks: 3, experts: 7, topK: 4, maxTokens: 3 };

  /** Two rounds of one rank, with experts that give every row back; what combine brings. */
  async function rounds(
    world: World,
    layer: Layer,
    all: readonly (readonly Source[])[],
    { family, graph }: { readonly family: string; readonly graph: boolean },
  ) {
    const { device, rank } = world;
    const ep = await ExpertParallel.create(world, { ...layerOf(layer), family });
    const experts = await ExpertsPlan.create(ep, { alignment: 16 });
    const stream = device.createStream();
    const { dtype, hidden } = layer.output;
    const x = emptyTensor(device, dtype, [experts.rows, hidden], 'rows of experts');
    const out = emptyTensor(device, dtype, [layer.maxTokens, hidden], 'out');
    const round = ({ topkIds, topkWeights, payloads }: Source) => {
      const received = ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads }, stream);
      experts.plan(received, stream);
      experts.expand(received, { x }, stream);
      experts.reduce(received, x, stream);
      ep.combine(out, stream);
    };
    const outs: Bits[] = [];
    for (const sources of all) {
      if (graph) stream.beginCapture();
      round(sources[rank]!);
      const captured = graph ? stream.endCapture() : null;
      for (let n = 0; n < 2; n++) captured?.launch(stream);
      outs.push(await readBits(out, stream));
    }
    await ep.synchronize(stream);
    experts.dispose();
    await ep.dispose();
    return outs;
  }

  it.each(families.flatMap(({ name: family }) => [false, true].map((graph) => ({ family, graph }))))(
    'bring the weighted sum of what was sent, and race with nothing: $family, a graph: $graph',
    async (how) => {
      const layer: Layer = { ...shapeOfRounds(shape), weights: true, counts: false };
      const all = [1, 2].map((seed) => makeSources(layer, layer.maxTokens, seed));
      const results = await raceFree({ ranks: 3, seed: '5' }, (world) => rounds(world, layer, all, how));
      const expected = all.map((sources) => {
        const outputs = sources.map((_, rank) => {
          const received = reference.dispatch(layer, sources, rank);
          // Every route's row is its slot's: as if each had a row of its own.
          const own = received.experts.map((id, route) => (id < 0 ? -1 : route));
          const { rowBytes } = layer.payloads[0]!;
          const rows = reference.expand(received.payloads.x!, rowBytes, layer, own, own.length);
          return reference.reduce(layer, received, own, bitsOf(layer.output.dtype, rows));
        });
        return sources.map((source, rank) => reference.combine(layer, source, rank, outputs));
      });
      expect(results).toEqual([0, 1, 2].map((rank) => expected.map((round) => round[rank])));
    },
  );
});

test.each([
  { split: false, replicas: 1, topK: 3 },
  { split: true, replicas: 1, topK: 4 },
  { split: false, replicas: 2, topK: 2 },
])('far fewer tokens than slots leave what they would leave in new buffers: %o', async (how) => {
  const { split, replicas, topK } = how;
  const ranks = 4;
  const layer: Layer = {
    ...shapeOfRounds({ ...small, ranks, experts: 8, topK, maxTokens: 14, replicas }),
    ...{ weights: true, counts: false },
  };
  const launch = { blocks: 1, threads: 32, parts: 1, inFlight: 4, teams: 1 };
  const tuning = { dispatch: { ...launch, blocks: 2 }, combine: { ...launch, way: 'push', ahead: 1 } };
  const tokens = [
    [14, 14, 14, 14],
    [2, 2, 6, 6],
    [1, 1, 14, 14],
    [9, 9, 14, 14],
    [0, 0, 1, 1],
    [3, 3, 0, 0],
    [0, 0, 0, 0],
    [1, 1, 1, 1],
  ];
  const all = tokens.map((own, seed) => makeSources(layer, own, seed));
  const seen = await raceFree({ ranks, seed: '7' }, async (world) => {
    const { device, rank } = world;
    const ep = await ExpertParallel.create(world, { ...layerOf(layer), family: 'one-sided', split, tuning });
    const experts = await ExpertsPlan.create(ep);
    const stream = device.createStream();
    const { dtype, hidden } = layer.output;
    const rounds = [];
    for (const [round, sources] of all.entries()) {
      const { tokens, topkIds, topkWeights, payloads } = sources[rank]!;
      const received = ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads }, stream);
      const { scatter, counts } = experts.plan(received, stream);
      const own = [received.experts, scatter, counts].map((tensor) => readBits(tensor, stream));
      // The rows of a round differ from those of any other.
      stream.fill(received.output.data, received.output.bytes, 1 + round);
      const out = emptyTensor(device, dtype, [tokens, hidden]);
      ep.combine(out, stream);
      rounds.push([...(await Promise.all(own)), await readBits(out, stream)]);
    }
    await ep.synchronize(stream);
    experts.dispose();
    await ep.dispose();
    return rounds;
  });
  const rows = { form: 'contiguous', alignment: 1, capacity: 2 ** 20 } as const;
  const slots = (ranks / replicas) * layer.maxTokens;
  const expected = Array.from({ length: ranks }, (_, rank) =>
    all.map((sources, round) => {
      const { experts } = reference.dispatch(layer, sources, rank);
      const { scatter, counts } = reference.plan(experts, expertsOf(layer, rank), rows);
      const rowsMade = new Uint8Array(slots * layer.output.hidden * 2).fill(1 + round);
      const outputs = sources.map(() => bitsOf(layer.output.dtype, rowsMade));
      return [experts, scatter, counts, reference.combine(layer, sources[rank]!, rank, outputs)];
    }),
  );
  expect(seen).toEqual(expected);
});

test('a plan whose memory is not to be had leaves nothing', () =>
  withReceived(arrived({ ...small, weighting: 'plan' }, 0, 1), async (of) => {
    const { device } = of.world;
    const live = liveMemory(device);
    for (const missing of ['sizes of experts', 'routes of rows', 'rows of routes', 'weights of routes']) {
      const restore = withoutRoom(device, missing);
      await expect(ExpertsPlan.create(of)).rejects.toThrow('no room');
      expect(live()).toBe(0);
      restore();
    }
  }));

test('a rank without experts plans nothing', async () => {
  const { sizes } = await planOf(arrived({ ...small, ranks: 3, experts: 2, topK: 1 }, 2, 1));
  expect(sizes).toEqual({ counts: new Uint32Array(0), offsets: Uint32Array.of(0), total: 0, overflow: 0 });
});

test('what finds no room is counted, and the token still travels: with the sum of what is left', async () => {
  const of = arrived({ ...small, ranks: 1, experts: 1, topK: 1, dtype: 'f32' }, 0, 2);
  const { sizes, scatter, reduced } = await withReceived(of, async (receiving) => {
    const { data, bytes } = receiving.received.output;
    const stream = receiving.world.device.createStream();
    stream.fill(data, bytes, 0xff);
    await stream.synchronize();
    return runPlan(receiving, { capacity: 2 });
  });
  expect(sizes).toMatchObject({ counts: Uint32Array.of(2), total: 2, overflow: 3 });
  expect(scatter).toEqual(Int32Array.of(0, 1, -1, -1, -1));
  expect(toF32('f32', reduced).slice(2 * 8)).toEqual(new Float32Array(3 * 8));
});

test('a caller’s own scatter indices take the plan’s place, in memory of any length', async () => {
  const of = arrived({ ...small, ranks: 1, dtype: 'f32' }, 0, 4);
  const { layer, received } = of;
  const routes = received.experts.length;
  const scatter = received.experts.map((_, route) => (route % 5 === 0 ? -1 : routes - route));
  const rows = routes + 1;
  await withReceived(of, async (receiving) => {
    const { device } = receiving.world;
    const stream = device.createStream();
    const plan = await ExpertsPlan.create(receiving);
    const own = tensorFrom(device, stream, scatter, 'i32', [1, layer.maxTokens, layer.topK]);
    const p1 = emptyTensor(device, 'u8', [rows, 12]);
    const x = emptyTensor(device, 'f32', [rows, 8]);
    for (const tensor of [p1, x]) stream.fill(tensor.data, tensor.bytes, 0);
    plan.expand(receiving.received, { p1 }, stream, own);
    plan.expand(receiving.received, { x }, stream, own);
    plan.reduce(receiving.received, x, stream, own);
    expect(await readBits(p1, stream)).toEqual(
      reference.expand(received.payloads.p1!, 12, layer, scatter, rows),
    );
    expect(await readBits(receiving.received.output, stream)).toEqual(
      reference.reduce(layer, received, scatter, await readBits(x, stream)),
    );
  });
});

describe('what cannot work is refused', () => {
  const of = arrived(small, 0, 1);
  const create = (how: object, shape = of.layer) =>
    withReceived(of, async (receiving) => {
      await ExpertsPlan.create({ ...receiving, shape }, how);
    });

  /** Units that a u32 can number, of which the payload of 12 bytes has 3 a row. A rank has 3 experts. */
  const most = Math.floor((2 ** 32 - 1) / 3);

  it.each<[object, string]>([
    [{ form: 'padded' }, `form is "padded"; it must be one of 'contiguous', 'masked'`],
    [{ aligned: 16 }, 'options.aligned is 16; it must be left out: there are form, alignment, capacity'],
    [{ alignment: 32 }, 'alignment is 32; it must be one of 1, 16, 64, 128'],
    [{ capacity: 0 }, `capacity is 0; it must be an integer from 1 to ${most}`],
    [
      { capacity: 0, form: 'masked' },
      `capacity is 0; it must be an integer from 1 to ${Math.floor(most / 3)}`,
    ],
    [{ capacity: 24, alignment: 16 }, 'capacity is 24; it must be a multiple of the alignment, 16'],
    [{ capacity: 2 ** 31 }, `capacity is ${2 ** 31}; it must be an integer from 1 to ${most}`],
  ])('%o', async (how, message) => {
    await expect(create(how)).rejects.toThrow(message);
  });

  it('more experts than a plan can hold', async () => {
    await expect(create({}, { ...of.layer, experts: 4096 })).rejects.toThrow(
      'experts is 4096; it must be at most 1024 on each rank, 2048 in all',
    );
  });

  it('more routes than can be numbered', async () => {
    await expect(create({}, { ...of.layer, ranks: 64, maxTokens: 2 ** 20, topK: 32 })).rejects.toThrow(
      `maxTokens is ${2 ** 20}; it must be at most 1048575, so that routes can be numbered`,
    );
  });

  it('rows of another type than the payload was declared with', async () => {
    await withReceived(of, async (receiving) => {
      const { device } = receiving.world;
      const { payloads } = receiving.received;
      const x = wrap(payloads.x!.data, 'bf16', [2, of.layer.maxTokens, 8]);
      const received = { ...receiving.received, payloads: { ...payloads, x } };
      const plan = await ExpertsPlan.create({ ...receiving, received });
      const stream = device.createStream();
      plan.plan(received, stream);
      const to = (dtype: 'bf16' | 'f16') => ({ x: emptyTensor(device, dtype, [plan.rows, 8]) });
      expect(() => plan.expand(received, to('f16'), stream)).toThrow(
        `to.x is "f16 [${plan.rows}, 8]"; it must be bf16, as the payload is`,
      );
      plan.expand(received, to('bf16'), stream);
      await stream.synchronize();
    });
  });

  it('tensors that do not fit, and calls out of order', async () => {
    await withReceived(of, async (receiving) => {
      const { device } = receiving.world;
      const { received } = receiving;
      const plan = await ExpertsPlan.create(receiving);
      const stream = device.createStream();
      const x = emptyTensor(device, 'bf16', [plan.rows, 8]);
      const short = emptyTensor(device, 'bf16', [plan.rows - 1, 8]);
      const f32 = emptyTensor(device, 'f32', [plan.rows, 8]);
      expect(() => plan.expand(received, { x }, stream)).toThrow('expand was called before plan');
      await expect(plan.sizes(stream)).rejects.toThrow('sizes was called before plan');
      expect(() => plan.plan({ ...received }, stream)).toThrow('received is "another, given to plan"');
      plan.plan(received, stream);
      expect(() => plan.expand(received, { y: x }, stream)).toThrow("absent: payloads are 'x', 'p1'");
      expect(() => plan.expand(received, {}, stream)).toThrow('tensors by the names of payloads');
      expect(() => plan.expand(received, { x: short }, stream)).toThrow(
        `to.x is "bf16 [${plan.rows - 1}, 8]"; it must be ${plan.rows} rows of 16 bytes, contiguous`,
      );
      expect(() => plan.reduce(received, f32, stream)).toThrow('it must be rows of 8 bf16');
      expect(() => plan.reduce(received, { ...x, data: x.data + 2 }, stream)).toThrow('a multiple of 16');
      expect(() => plan.reduce(received, x, stream, x)).toThrow('scatter is "bf16');
      plan.dispose();
      plan.dispose();
      expect(() => plan.plan(received, stream)).toThrow('this ExpertsPlan was disposed');
    });
  });
});
