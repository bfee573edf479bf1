import { describe, expect, it, test } from 'vitest';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import { fromF32 } from '../../src/moe/formats/index.js';
import {
  bytesOf,
  DenseMlp,
  type DenseMlpOptions,
  ExpertsMlp,
  ExpertsPlan,
  emptyTensor,
  type MlpWeights,
  type Receiving,
  readBits,
  type Tensor,
  tensorFrom,
} from '../../src/moe/index.js';
import {
  type Layer,
  type MlpMatrices,
  type ReferenceReceived,
  reference,
} from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import {
  compareClosely,
  makeSources,
  type RoundsShape,
  type RoutesOptions,
  randomElements,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';
import {
  compareMlp,
  inE4m3,
  makeMlp,
  makePackedMlp,
  makeScaledMlp,
  ofKind,
  placeReceived,
  runMlp,
} from '../../src/verify/trials/index.js';
import { liveMemory } from './live-memory.js';
import { withReceived } from './received.js';

const shape: RoundsShape = { ranks: 2, experts: 6, topK: 3, maxTokens: 12, hidden: 64, dtype: 'bf16' };
const layer: Layer = { ...shapeOfRounds(shape), weights: true, counts: false };
const inner = 128;
const experts: readonly MlpMatrices[] = [1, 2, 3].map((seed) => makeMlp(shape.hidden, inner, seed));

const arrived = (routes: RoutesOptions = {}) =>
  reference.dispatch(layer, makeSources(layer, layer.maxTokens, 3, routes), 1);

/** Calls `body` with what rank 1 received. */
const onGpu = <T>(
  received: ReturnType<typeof arrived>,
  body: (of: Receiving) => Promise<T>,
  shape = layer,
): Promise<T> => withReceived({ layer: shape, rank: 1, received }, body);

/** Runs experts on what rank 1 received; then says how many values differ from what the reference makes of any. */
async function ran(
  layer: Layer,
  received: ReferenceReceived,
  experts: readonly MlpMatrices[],
  how: Parameters<typeof runMlp>[4] = {},
) {
  const actual = await onGpu(received, (of) => runMlp(of, experts, {}, 2, how), layer);
  const capacity = layer.ranks * layer.maxTokens * layer.topK;
  return (others: readonly MlpMatrices[], of = received): number =>
    compareMlp(layer, 1, of, others, capacity, actual).different;
}

describe.each(['mma.sync', 'wgmma'] as const)('multiplied by %s', (instructions) => {
  test.each<[string, RoutesOptions]>([
    ['uniform routes', {}],
    ['an expert with most of the rows, and holes', { router: { kind: 'zipf', exponent: 2 }, holes: 0.3 }],
    ['no routes at all', { holes: 1 }],
  ])('experts give what the reference gives: %s', async (_, routes) => {
    const compare = await ran(layer, arrived(routes), experts, { instructions });
    expect(compare(experts)).toBe(0);
  });

  test.each([
    ['clamped-swiglu', true],
    ['clamped-swiglu', false],
    ['swiglu', true],
  ] as const)('of experts with %s, biases: %s', async (activation, biases) => {
    const own = experts.map((expert, e) => ofKind(expert, { ...shape, activation, biases }, e));
    const compare = await ran(layer, arrived(), own, { instructions });
    expect(compare(own)).toBe(0);
    // Each part counts.
    const other = activation === 'swiglu' ? 'clamped-swiglu' : 'swiglu';
    expect(compare(own.map((expert) => ({ ...expert, activation: other })))).toBeGreaterThan(0);
    for (const part of biases ? (['gateUpBias', 'downBias'] as const) : []) {
      for (const at of [0, own[0]![part]!.length - 1]) {
        const without = own.map((expert) => ({ ...expert, [part]: expert[part]!.with(at, 0) }));
        expect(compare(without)).toBeGreaterThan(0);
      }
    }
  });
});

/** `heddle check mlp hopper` has such experts of few rows and of many, in order, and runs all under the race detector. */
test('rows of e4m3 with scales give what the reference gives of them', async () => {
  const maxTokens = 12;
  const of: Layer = {
    ...shapeOfRounds({ ...shape, maxTokens, hidden: 256 }),
    ...{ weights: true, counts: false },
  };
  const { layer, sources } = inE4m3(of, makeSources(of, maxTokens, 6));
  const wide = [4, 5, 6].map((seed) => makeMlp(256, inner, seed));
  const received = reference.dispatch(layer, sources, 1);
  const compare = await ran(layer, received, wide);
  expect(compare(wide)).toBe(0);
  // Each scale counts: with one of them doubled the result is another.
  const scales = received.payloads.scales!.slice();
  const [slot] = [...received.experts.keys()].filter((i) => received.experts[i]! >= 0);
  new Float32Array(scales.buffer)[2 * Math.floor(slot! / layer.topK) + 1]! *= 2;
  const other = { ...received, payloads: { ...received.payloads, scales } };
  expect(compare(wide, other)).toBeGreaterThan(0);
});

/** Of gpt-oss's kind: a tile of 192 columns fits, and stages are no multiple of those under way. */
const packedKind = { activation: 'clamped-swiglu', biases: true } as const;
describe.each(['mma.sync', 'wgmma'] as const)('by %s', (instructions) => {
  test.each<[string, number, number, number, RoutesOptions, number?]>([
    ['few rows an expert', 3, 320, 192, { holes: 0.3 }],
    ['many, and an expert with most of them', 70, 64, 64, { router: { kind: 'zipf', exponent: 1 } }],
    ['few where many could come', 70, 64, 64, { holes: 0.9 }, 4],
    ['many, where this rank brought few tokens', 70, 64, 64, { router: { kind: 'one-rank', target: 1 } }, 4],
  ])(
    'weights of MXFP4 give what their numbers do as bf16: %s',
    async (_, maxTokens, hidden, inner, routes, tokens) => {
      const of: Layer = { ...shapeOfRounds({ ...shape, maxTokens, hidden }), weights: true, counts: false };
      const packed = [4, 5, 6].map((seed) =>
        ofKind(makePackedMlp(hidden, inner, seed), { hidden, ...packedKind }, seed),
      );
      const received = reference.dispatch(of, makeSources(of, maxTokens, 6, routes), 1);
      const how = { instructions, ...(tokens !== undefined && { tokens }) };
      const compare = await ran(of, received, packed, how);
      expect(compare(packed)).toBe(0);
      // Each weight counts.
      for (const part of tokens === undefined ? (['gateUp', 'down'] as const) : [])
        for (const at of [1, packed[0]![part].length - 1]) {
          const others = packed.map((one) => ({ ...one, [part]: one[part].with(at, 0x4200) }));
          expect(compare(others)).toBeGreaterThan(0);
        }
    },
  );
});

const skewed: RoutesOptions = { router: { kind: 'zipf', exponent: 1 } };
test.each<[string, number, number, RoutesOptions, number?]>([
  ['few rows an expert', 12, 128, {}],
  ['many, and an expert with most of them, with biases', 70, 256, { ...skewed, holes: 0.2 }],
  ['few where many could come', 70, 128, { ...skewed, holes: 0.9 }, 4],
  ['many, where this rank brought few tokens', 70, 128, { router: { kind: 'one-rank', target: 1 } }, 4],
])(
  'weights of e4m3 give what the reference gives of them: %s',
  async (_, maxTokens, inner, routes, tokens) => {
    const hidden = 256;
    const of: Layer = {
      ...shapeOfRounds({ ...shape, maxTokens, hidden }),
      ...{ weights: true, counts: false },
    };
    const { layer, sources } = inE4m3(of, makeSources(of, maxTokens, 6, routes));
    const kind = maxTokens === 12 ? {} : ({ activation: 'clamped-swiglu', biases: true } as const);
    const scaled = [4, 5, 6].map((seed) =>
      ofKind(makeScaledMlp(hidden, inner, seed), { hidden, ...kind }, seed),
    );
    const received = reference.dispatch(layer, sources, 1);
    const compare = await ran(layer, received, scaled, tokens === undefined ? {} : { tokens });
    expect(compare(scaled)).toBe(0);
    // Each scale of weights counts.
    for (const part of maxTokens === 12 ? (['gateUpScales', 'downScales'] as const) : []) {
      const other = scaled.map((matrices) => ({ ...matrices, [part]: matrices[part].slice().fill(1, 0, 1) }));
      expect(compare(other)).toBeGreaterThan(0);
    }
  },
);

describe.each(['mma.sync', 'wgmma'] as const)('no row is read that no route needs, by %s', (instructions) => {
  /** On the checked machine, which reports reads of what nobody wrote: rows that no route needs, and those between GEMMs. */
  const findings = async (received: ReturnType<typeof arrived>, written = received) => {
    const machine = SimMachine.create({ ranks: 1, mode: 'checked' });
    await World.local({ ranks: 1, device: 'sim', sim: machine }, async ({ device }) => {
      const stream = device.createStream();
      const placed = placeReceived(device, stream, layer, written);
      stream.copyIn(placed.experts.data, bytesOf(received.experts));
      await stream.synchronize();
      const of = { world: { device, rank: 1 }, shape: layer, received: placed };
      await runMlp(of, experts, {}, 1, { instructions });
    });
    return machine.findings.map(formatFinding);
  };
  const received = arrived({ holes: 0.6 });

  it('in either GEMM, whatever is left of a tile', async () => {
    const { topK } = layer;
    const slots = received.experts.length / topK;
    const used = new Set(
      [...received.experts.keys()].filter((i) => received.experts[i]! >= 0).map((i) => Math.floor(i / topK)),
    );
    expect(used.size).toBeGreaterThan(0);
    expect(used.size).toBeLessThan(slots);
    expect(await findings(received)).toEqual([]);
  });

  it('and a route whose row did not come is reported', async () => {
    const route = received.experts.findIndex((id) => id >= 0);
    const slot = Math.floor(route / layer.topK);
    const without = received.experts.map((id, i) => (Math.floor(i / layer.topK) === slot ? -1 : id));
    const found = await findings(received, { ...received, experts: without });
    expect(found.join('\n')).toContain('Read of memory that nobody wrote');
  });
});

test.each<[string, Pick<DenseMlpOptions, 'sms' | 'instructions'>]>([
  ['on all multiprocessors', {}],
  // A number that does not divide the tiles: those that are left are cut.
  ['on three', { sms: 3 }],
  ['with biases', {}],
  ['with biases, by wgmma', { instructions: 'wgmma' }],
])('one expert takes all rows, %s', async (name, how) => {
  const { hidden } = shape;
  const tokens = 21;
  const biases = name.includes('biases');
  const one = ofKind(experts[0]!, { hidden, biases }, 6);
  const rows = randomElements('bf16', tokens * hidden, 4);
  const [out] = await World.local({ ranks: 1, device: 'sim' }, async ({ device }) => {
    const stream = device.createStream();
    const place = (bits: typeof rows, of: readonly number[]) => tensorFrom(device, stream, bits, 'bf16', of);
    const mlp = await DenseMlp.create(device, {
      gateUp: place(one.gateUp, [2 * inner, hidden]),
      down: place(one.down, [hidden, inner]),
      ...(biases && {
        gateUpBias: place(one.gateUpBias!, [2 * inner]),
        downBias: place(one.downBias!, [hidden]),
      }),
      maxTokens: 32,
      ...how,
    });
    const to = emptyTensor(device, 'bf16', [tokens, hidden]);
    mlp.run(place(rows, [tokens, hidden]), to, tokens, stream);
    return readBits(to, stream);
  });
  const found = compareClosely('out', 'bf16', out!, reference.mlp(rows, hidden, one), hidden);
  expect(found).toMatchObject({ different: 0 });
});

test('one expert of e4m3 weights rounds no more rows than it is told', async () => {
  const [tokens, hidden] = [9, 256];
  const outs = await World.local({ ranks: 1, device: 'sim' }, async ({ device }) => {
    const stream = device.createStream();
    // More rows than the expert has room for.
    const x = tensorFrom(device, stream, randomElements('bf16', 40 * hidden, 5), 'bf16', [40, hidden]);
    const [gateUp, down] = [
      { bits: fromF32('e4m3', few(2 * inner * hidden, 1)), shape: [2 * inner, hidden] },
      { bits: fromF32('e4m3', few(inner * hidden, 2)), shape: [hidden, inner] },
    ].map(({ bits, shape }) => tensorFrom(device, stream, bits, 'e4m3', shape));
    const scales = (rows: number, columns: number) =>
      tensorFrom(device, stream, new Float32Array(rows * columns).fill(0.5), 'f32', [rows, columns]);
    const weights = { gateUp: gateUp!, down: down!, gateUpScales: scales(2, 2), downScales: scales(2, 1) };
    const live = liveMemory(device);
    const mlp = await DenseMlp.create(device, { ...weights, maxTokens: 16 });
    expect(mlp.memory.parts).toHaveLength(live());
    const made = async (rows: Tensor) => {
      const out = emptyTensor(device, 'bf16', [tokens, hidden]);
      mlp.run(rows, out, tokens, stream);
      return readBits(out, stream);
    };
    const own = emptyTensor(device, 'bf16', [tokens, hidden]);
    stream.copy(own.data, x.data, own.bytes);
    return [await made(x), await made(own)];
  });
  const [[ofMany, ofFew]] = outs as [Awaited<ReturnType<typeof readBits>>[]];
  expect(new Set(ofMany).size).toBeGreaterThan(50);
  expect(ofFew).toEqual(ofMany);
});

/** Sums of small integers are the same in any order, so any difference is a mistake. */
function few(count: number, seed: number) {
  return Float32Array.from({ length: count }, (_, i) => (((i * 2654435761 + seed) >>> 7) % 5) - 2);
}

describe('where an expert has too few tiles for all blocks, they share them', () => {
  const tokens = 21;
  const run = (
    dtype: 'bf16' | 'e4m3',
    hidden: number,
    inner: number,
    how: { maxTokens: number; sms?: number; invariant?: boolean },
    values = few,
    rows = tokens,
  ) =>
    World.local({ ranks: 1, device: 'sim' }, async ({ device }) => {
      const stream = device.createStream();
      const place = (type: 'bf16' | 'e4m3', count: number, seed: number, of: readonly number[]) =>
        tensorFrom(device, stream, fromF32(type, values(count, seed)), type, of);
      const scales = (rows: number, columns: number) => {
        const values = Float32Array.from({ length: rows * columns }, (_, i) => 2 ** ((i % 3) - 1));
        return tensorFrom(device, stream, values, 'f32', [rows, columns]);
      };
      const mlp = await DenseMlp.create(device, {
        gateUp: place(dtype, 2 * inner * hidden, 1, [2 * inner, hidden]),
        down: place(dtype, hidden * inner, 2, [hidden, inner]),
        ...(dtype === 'e4m3' && {
          gateUpScales: scales((2 * inner) / 128, hidden / 128),
          downScales: scales(hidden / 128, inner / 128),
        }),
        gateUpBias: place('bf16', 2 * inner, 4, [2 * inner]),
        downBias: place('bf16', hidden, 5, [hidden]),
        ...{ instructions: 'wgmma', ...how },
      });
      const to = emptyTensor(device, 'bf16', [rows, hidden]);
      mlp.run(place('bf16', rows * hidden, 3, [rows, hidden]), to, rows, stream);
      const shares = mlp.memory.parts.filter(({ purpose }) => purpose === 'sums of parts').length;
      return { out: await readBits(to, stream), shares };
    });

  test.each([
    ['bf16', 256, 128, 2],
    ['e4m3', 256, 128, 1],
    ['e4m3', 128, 256, 1],
  ] as const)('%s, hidden %d, inner %d, %d shared', async (dtype, hidden, inner, shares) => {
    const [alone] = await run(dtype, hidden, inner, { maxTokens: 4096 });
    const [together] = await run(dtype, hidden, inner, { maxTokens: 32 });
    const [onOne] = await run(dtype, hidden, inner, { maxTokens: 32, sms: 1 });
    expect(alone!.shares).toBe(0);
    expect(together!.shares).toBe(shares);
    expect(onOne).toEqual(together);
    expect(new Set(alone!.out).size).toBeGreaterThan(50);
    expect(together!.out).toEqual(alone!.out);
  });

  test.each(['bf16', 'e4m3'] as const)(
    'and where rows are invariant nobody does, so that a row has the same bits in any number: %s',
    async (dtype) => {
      const [hidden, inner] = [256, 128];
      const of = async (maxTokens: number, rows: number, invariant: boolean) =>
        (await run(dtype, hidden, inner, { maxTokens, invariant }, large, rows))[0]!;
      const many = await of(4096, tokens, true);
      expect(many.shares).toBe(0);
      expect(await of(32, tokens, true)).toEqual(many);
      expect((await of(32, 1, true)).out).toEqual(many.out.slice(0, hidden));
      // Parts would show.
      if (dtype === 'bf16') expect((await of(32, tokens, false)).out).not.toEqual(many.out);
    },
  );
});

/** Every 128 elements of a row begin with a large one, whose sign changes: what is added up beside it is rounded. */
const large = (count: number, seed: number) =>
  few(count, seed).map((value, i) =>
    i % 128 > 0 ? value : seed !== 3 ? 1 : i % 256 === 0 ? 2 ** 26 : -(2 ** 26),
  );

describe('bad input is refused', () => {
  /** Calls `body` with a plan, and weights of which these are others. */
  const withPlan = <T>(
    body: (of: Receiving, plan: ExpertsPlan, given: MlpWeights) => Promise<T>,
    shapes: Readonly<Record<string, readonly number[]>> = {},
  ): Promise<T> =>
    onGpu(arrived(), async (of) => {
      const all = Object.entries({ gateUp: [3, 256, 64], down: [3, 64, 128], ...shapes });
      const given = all.map(([name, like]) => [name, emptyTensor(of.world.device, 'bf16', like)]);
      return body(of, await ExpertsPlan.create(of), Object.fromEntries(given));
    });

  it.each<[string, Parameters<typeof withPlan>[1], object?]>([
    ['gateUp', { gateUp: [3, 255, 64] }],
    ['gateUp', { gateUp: [2, 256, 64] }],
    ['down', { gateUp: [3, 128, 64] }],
    ['down', { down: [3, 64, 64] }],
    ['down', { down: [3, 128, 64] }],
    ['inner', { gateUp: [3, 200, 64], down: [3, 64, 100] }],
    ['gateUpBias', { gateUpBias: [3, 128] }],
    ['gateUpBias', { gateUpBias: [256] }],
    ['downBias', { downBias: [2, 64] }],
    ['activation', {}, { activation: 'gelu' }],
    ['gemm', { downBias: [3, 64] }, { gemm: 'cublas' }],
    ['gemm', {}, { activation: 'clamped-swiglu', gemm: 'cublas' }],
    ['payload', {}, { payload: 'y' }],
    ['payload', {}, { scales: 'scales' }],
    ['scales', {}, { scales: 'scales', gemm: 'cublas' }],
    ['instructions', {}, { instructions: 'hmma' }],
    ['invariant', {}, { invariant: 1 }],
    ['gemm', {}, { invariant: true, gemm: 'cublas' }],
  ])('%s %j %j', async (argument, shapes, how) => {
    const created = withPlan((of, plan, given) => ExpertsMlp.create(of, plan, { ...given, ...how }), shapes);
    await expect(created).rejects.toMatchObject({ code: 'HEDDLE_ARGUMENT', argument });
  });

  it('cuBLAS needs a GPU; what was allocated until then is freed', () =>
    withPlan(async (of, plan, given) => {
      const live = liveMemory(of.world.device);
      await expect(ExpertsMlp.create(of, plan, { ...given, gemm: 'cublas' })).rejects.toThrow(
        'gemm is "cublas"; it must be \'heddle\' on',
      );
      expect(live()).toBe(0);
    }));

  it('a payload of another type whose rows have as many bytes', () =>
    withPlan(async (of, _, given) => {
      const { payloads } = of.received;
      const x = { ...payloads.x!, dtype: 'f16', shape: [2, layer.maxTokens, 64] } as const;
      const typed = { ...of, received: { ...of.received, payloads: { ...payloads, x } } };
      await expect(ExpertsMlp.create(typed, await ExpertsPlan.create(typed), given)).rejects.toThrow(
        'payload is "f16 [2, 12, 64]"; it must be rows of 64 bf16',
      );
    }));

  it('runs only behind a plan', () =>
    withPlan(async (of, plan, given) => {
      const mlp = await ExpertsMlp.create(of, plan, given);
      expect(() => mlp.run(of.received, of.world.device.createStream())).toThrow('before plan');
    }));
});
