/** Rows of bf16 that dispatch carries as e4m3 with scales: what arrives, in every way of a round, and what is refused. */
import fc from 'fast-check';
import { describe, expect, expectTypeOf, it, test } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import type { Stream } from '../../src/gpu/index.js';
import { formatFinding, type MachineOptions, SimMachine } from '../../src/gpu/sim/index.js';
import {
  bytesOf,
  type Dispatched,
  type DispatchInputs,
  ExpertParallel,
  type ExpertParallelOptions,
  ExpertsMlp,
  ExpertsPlan,
  emptyTensor,
  fp8,
  type Input,
  mxfp8,
  type Received,
  type Row,
  readBits,
  row,
  tensorFrom,
} from '../../src/moe/index.js';
import {
  bitsOf,
  quantise,
  roundRows,
  type ScaledFormatName,
  type Shape,
  type Source,
  scaleBlock,
  scaledFormats,
  toF32,
} from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import {
  compareReceived,
  type Delivered,
  makeSources,
  mergeComparisons,
  type RoundsShape,
  randomElements,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';

const small: RoundsShape = {
  ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 3, hidden: 256, dtype: 'bf16' },
};

type Features = Pick<ExpertParallelOptions, 'family' | 'transport' | 'split' | 'rounds' | 'tuning'>;
interface Way extends Features {
  /** Default: fp8, which is e4m3 with an f32 for 128 elements. */
  readonly format?: ScaledFormatName;
  readonly nodes?: number;
  /** The rows of rounds come as what the host holds. */
  readonly host?: boolean;
}

/** Infinities, a NaN, zeros of both signs, the smallest and the largest of bf16, in rows and blocks of their own. */
function withOddRows(source: Source): Source {
  const x = bitsOf('bf16', source.payloads.x!.slice()) as Uint16Array;
  const put = (at: number, bits: number) => at < x.length && x.set([bits], at);
  for (const [i, bits] of [0x7f80, 0xff80, 0x7fc0].entries()) put(i * 3 * scaleBlock + 5 * i, bits);
  x.fill(0x8000, scaleBlock, Math.min(x.length, 2 * scaleBlock));
  put(scaleBlock + 1, 0x0001);
  put(2 * scaleBlock + 7, 0x7f7f);
  return { ...source, payloads: { ...source.payloads, x: bytesOf(x) } };
}

/** The same rows as a caller brings them that rounds by itself. */
const rounded = (source: Source, format: ScaledFormatName): Source => {
  const { e4m3, scales } = roundRows(
    toF32('bf16', bitsOf('bf16', source.payloads.x!)),
    scaledFormats[format],
  );
  const { x: _, ...others } = source.payloads;
  return { ...source, payloads: { x: e4m3, xScales: bytesOf(scales), ...others } };
};

/** The payloads as they travel then. */
const roundedPayloads = ({ payloads: [, ...others], output: { hidden } }: Shape): Shape['payloads'] => [
  { name: 'x', rowBytes: hidden },
  { name: 'xScales', rowBytes: hidden / 32 },
  ...others,
];

/** Elements whose scale is NaN are NaN, whatever their bits: all of them 0x7f. A ue8m0 whose elements all are NaN may be any. */
function plain(payloads: Delivered['payloads'], format: ScaledFormatName): Delivered['payloads'] {
  const { block, scale } = scaledFormats[format];
  const [x, xScales] = [payloads.x!.slice(), payloads.xScales!.slice()];
  for (const [i, value] of bitsOf(scale, xScales).entries()) {
    const elements = x.subarray(i * block, (i + 1) * block);
    if (Number.isNaN(value)) elements.fill(0x7f);
    if (scale === 'u8' && elements.every((bits) => (bits & 0x7f) === 0x7f)) {
      elements.fill(0x7f);
      xScales[i] = 0;
    }
  }
  return { ...payloads, x, xScales };
}

/** Rounds of this shape; rows are brought as bf16, or as e4m3 with scales. What arrives, [rank][round], and what the machine found. */
async function arrive(
  shape: Shape,
  rounds: readonly (readonly Source[])[],
  brought: 'bf16' | 'e4m3',
  { format = 'e4m3', nodes = 1, host = false, ...features }: Way,
  mode: MachineOptions['mode'] = 'fast',
) {
  const { ranks, experts, topK, maxTokens, replicas = 1, output, payloads } = shape;
  const { hidden } = output;
  const { block, scale } = scaledFormats[format];
  const rows: ExpertParallelOptions['payloads'] = {
    ...(brought === 'bf16'
      ? { x: (format === 'mxfp8' ? mxfp8 : fp8)('bf16', hidden) }
      : { x: row('e4m3', hidden), xScales: row(scale, hidden / block) }),
    ...Object.fromEntries(payloads.slice(1).map(({ name, rowBytes }) => [name, row('u8', rowBytes)])),
  };
  const machine = SimMachine.create({ ranks, mode, seed: 'fp8' });
  const arrived = await World.local({ ranks, nodes, device: 'sim', sim: machine }, async (world) => {
    const { device } = world;
    const ep = await ExpertParallel.create(world, {
      ...{ experts, topK, maxTokens, replicas, payloads: rows, output: row('bf16', hidden), ...features },
    });
    const streams = ep.views.map(() => device.createStream());
    const bring = (source: Source): DispatchInputs => {
      const input = (bytes: Uint8Array, { dtype, length }: Row): Input => {
        const bits = bitsOf(dtype, bytes);
        return host ? bits : tensorFrom(device, streams[0]!, bits, dtype, [source.tokens, length]);
      };
      return {
        topkIds: input(bytesOf(source.topkIds), row('i32', topK)),
        topkWeights: input(bytesOf(source.topkWeights!), row('f32', topK)),
        payloads: Object.fromEntries(
          Object.entries(rows).map(([name, row]) => [name, input(source.payloads[name]!, row)]),
        ),
      };
    };
    const mine = rounds.map((sources) => bring(sources[world.rank]!));
    const outs = rounds.map((sources) => emptyTensor(device, 'bf16', [sources[world.rank]!.tokens, hidden]));
    await streams[0]!.synchronize();
    const received: Promise<Delivered>[] = [];
    const end = (n: number): void => {
      const [view, stream] = [ep.views[n % streams.length]!, streams[n % streams.length]!];
      if (sent[n] !== undefined) ep.dispatchRecv(sent[n], stream);
      received.push(look(view, stream));
      stream.fill(view.output.data, view.output.bytes, 0);
      ep.combine(outs[n]!, stream);
    };
    const sent = mine.map((): Dispatched | undefined => undefined);
    for (const [n, inputs] of mine.entries()) {
      const stream = streams[n % streams.length]!;
      if (ep.split) sent[n] = ep.dispatchSend(inputs, stream);
      else ep.dispatch(inputs, stream);
      // With two in flight each is sent before the one before it is looked at.
      if (n + 1 >= streams.length) end(n + 1 - streams.length);
    }
    for (let n = received.length; n < mine.length; n++) end(n);
    for (const stream of streams) await ep.synchronize(stream);
    const all = await Promise.all(received);
    await ep.dispose();
    return all;
  });
  return { arrived, findings: machine.findings.map(formatFinding) };
}

/** What lies in a view, once the stream comes here. */
async function look({ experts, weights, payloads }: Received, stream: Stream): Promise<Delivered> {
  const planes = Object.entries(payloads).map(
    async ([name, plane]) => [name, bytesOf(await readBits(plane, stream))] as const,
  );
  const [ids, byRoute] = [readBits(experts, stream), readBits(weights!, stream)];
  return {
    experts: (await ids) as Int32Array,
    weights: (await byRoute) as Float32Array,
    payloads: Object.fromEntries(await Promise.all(planes)),
  };
}

/** What arrives, however rows are brought, is what the host's arithmetic makes of them. */
async function expectRounded(of: RoundsShape, way: Way, seed: number, mode?: MachineOptions['mode']) {
  const { format = 'e4m3' } = way;
  const shape = shapeOfRounds({ extra: [6], ...of });
  const tokens = [of.maxTokens, of.maxTokens - (of.replicas ?? 1), 0];
  const rounds = tokens.map((some, n) => makeSources(shape, some, seed + n).map(withOddRows));
  const sent = rounds.map((sources) => sources.map((source) => rounded(source, format)));
  const theirs = { ...shape, payloads: roundedPayloads(shape) };
  for (const [brought, brings] of [
    ['bf16', rounds],
    ['e4m3', sent],
  ] as const) {
    const { arrived, findings } = await arrive(shape, brings, brought, way, mode);
    expect(findings).toEqual([]);
    const { different, first } = mergeComparisons(
      arrived.flatMap((all, rank) =>
        all.map((one, n) => {
          const likewise = <T extends Delivered | Source>(of: T): T => ({
            ...of,
            payloads: plain(of.payloads, format),
          });
          return compareReceived(theirs, sent[n]!.map(likewise), rank, likewise(one));
        }),
      ),
    );
    expect(different, `${brought}: ${first}`).toBe(0);
    // It is not that nothing arrived.
    expect(arrived.some(([one]) => one!.experts.some((id) => id >= 0))).toBe(true);
  }
}

const launch = { blocks: 2, threads: 64, parts: 3, inFlight: 4, teams: 1 } as const;
const spread = { dispatch: launch, combine: { ...launch, way: 'push', ahead: 1 } };

const parted = {
  dispatch: { blocks: 2, threads: 64, parts: 3 },
  combine: { blocks: 2, threads: 64, parts: 1 },
};

const ways: Readonly<Record<string, [Way, Partial<RoundsShape>?]>> = {
  'one-sided': [{ family: 'one-sided' }],
  'one-sided, split': [{ family: 'one-sided', split: true }],
  'one-sided, two in flight': [{ family: 'one-sided', split: true, rounds: 2 }],
  'one-sided, groups of 2': [{ family: 'one-sided' }, { ranks: 4, replicas: 2, maxTokens: 4 }],
  'one-sided, host arrays': [{ family: 'one-sided', host: true }],
  'one-sided, in parts': [{ family: 'one-sided', tuning: spread }, { hidden: 640 }],
  'one-sided, beside other rows': [{ family: 'one-sided', tuning: spread }, { extra: [48] }],
  'one-sided, mxfp8, in parts': [{ family: 'one-sided', format: 'mxfp8', tuning: spread }, { hidden: 640 }],
  portable: [{ family: 'portable' }],
  'portable, in parts': [{ family: 'portable', tuning: parted }, { hidden: 640 }],
  'portable, mxfp8, in parts': [{ family: 'portable', format: 'mxfp8', tuning: parted }, { hidden: 640 }],
  'portable, over NVSHMEM': [{ family: 'portable', transport: 'nvshmem', tuning: parted }, { extra: [] }],
  'portable, two in flight': [{ family: 'portable', split: true, rounds: 2 }],
  'portable, groups of 2, host arrays': [
    { family: 'portable', host: true },
    { ranks: 4, replicas: 2, maxTokens: 4 },
  ],
  'hybrid, two nodes': [{ family: 'hybrid', nodes: 2 }, { ranks: 4 }],
  'hybrid, mxfp8, two nodes, groups of 2': [
    { family: 'hybrid', format: 'mxfp8', nodes: 2 },
    { ranks: 4, replicas: 2, maxTokens: 6, hidden: 384, extra: [] },
  ],
  'hybrid, two nodes, split, host arrays': [{ family: 'hybrid', nodes: 2, split: true, host: true }],
};

describe('what arrives is what the host makes of the rows, and what a caller brings that rounds by itself', () => {
  test.each(Object.entries(ways))('%s', (_, [way, change]) => expectRounded({ ...small, ...change }, way, 1));

  test.each([
    ...['one-sided, two in flight', 'one-sided, in parts', 'portable', 'portable, over NVSHMEM'],
    ...['hybrid, two nodes', 'hybrid, mxfp8, two nodes, groups of 2'],
  ])('free of races under the checker: %s', (name) =>
    expectRounded({ ...small, ...ways[name]![1], hidden: 128 }, ways[name]![0], 2, 'checked'),
  );

  test('rows of any length and number', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...Object.values(ways)),
        fc.record({
          blocks: fc.integer({ min: 1, max: 5 }),
          tokens: fc.integer({ min: 1, max: 5 }),
          seed: fc.nat(999),
        }),
        async ([way, change], { blocks, tokens, seed }) => {
          const maxTokens = tokens * (change?.replicas ?? 1);
          await expectRounded({ ...small, ...change, maxTokens, hidden: blocks * scaleBlock }, way, seed);
        },
      ),
      { numRuns: 8, seed: 5 },
    );
  });
});

test('each replay of a graph rounds what lies there then', async () => {
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const { device } = world;
    const stream = device.createStream();
    const hidden = 256;
    const ep = await ExpertParallel.create(world, {
      ...{ experts: 2, topK: 1, maxTokens: 2, payloads: { x: fp8('bf16', hidden) } },
      output: row('bf16', hidden),
    });
    const of = (n: number) => randomElements('bf16', 2 * hidden, n, 6);
    const x = tensorFrom(device, stream, of(0), 'bf16', [2, hidden]);
    const topkIds = tensorFrom(device, stream, Int32Array.of(0, 1), 'i32', [2, 1]);
    const topkWeights = tensorFrom(device, stream, Float32Array.of(1, 1), 'f32', [2, 1]);
    const out = emptyTensor(device, 'bf16', [2, hidden]);
    stream.fill(ep.received.output.data, ep.received.output.bytes, 0);
    stream.beginCapture();
    ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
    ep.combine(out, stream);
    const graph = stream.endCapture();
    for (const n of [1, 2, 3]) {
      stream.copyIn(x.data, bytesOf(of(n)));
      graph.launch(stream);
      const { e4m3, scales } = quantise(toF32('bf16', of(n)));
      expect(await readBits(ep.received.payloads.x, stream)).toEqual(e4m3);
      expect(await readBits(ep.received.payloads.xScales, stream)).toEqual(scales);
    }
    await ep.synchronize(stream);
    graph.dispose();
    await ep.dispose();
  });
});

const layer = { experts: 2, topK: 1, maxTokens: 2, output: row('bf16', 256) };

describe('refuses', () => {
  const memory = (payloads: object) => () =>
    ExpertParallel.memory({ ...layer, ranks: 1, payloads: payloads as ExpertParallelOptions['payloads'] });
  it.each<[string, object, string]>([
    [
      'rows that scales do not divide',
      { x: fp8('bf16', 200) },
      'payloads.x.length is 200; it must be a multiple of 128, whose scales fill a word',
    ],
    [
      'rows of another type',
      { x: fp8('f16' as 'bf16', 128) },
      `payloads.x.dtype is "f16"; it must be one of 'bf16'`,
    ],
    [
      'another rounding',
      { x: { ...row('bf16', 128), rounds: 'nvfp4' } },
      `payloads.x.rounds is "nvfp4"; it must be one of 'e4m3', 'mxfp8'`,
    ],
    [
      'a payload by the name of the scales',
      { x: fp8('bf16', 128), xScales: row('f32', 1) },
      'payloads.xScales is Object; it must be absent: scales of x arrive by that name',
    ],
    [
      'more than eight payloads with the scales',
      Object.fromEntries([...'abcde'].map((name) => [name, fp8('bf16', 128)])),
      'payloads is Array of length 10; it must be an array of at most 8',
    ],
  ])('%s', (_, payloads, message) => {
    expect(memory(payloads)).toThrow(ArgumentError);
    expect(memory(payloads)).toThrow(message);
  });

  it('rows that come back', () => {
    const output = fp8('bf16', 128);
    expect(() => ExpertParallel.memory({ ...layer, ranks: 1, payloads: {}, output })).toThrow(
      `output.rounds is "e4m3"; it must be absent: wire: 'e4m3' rounds rows that come back`,
    );
  });

  it('inputs of other types, and scales, and a round goes on behind that', async () => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const { device } = world;
      const stream = device.createStream();
      const ep = await ExpertParallel.create(world, { ...layer, payloads: { x: fp8('bf16', 256) } });
      const [topkIds, topkWeights] = [Int32Array.of(0, 1), Float32Array.of(1, 1)];
      const rows = randomElements('bf16', 512, 7, 6);
      const dispatch = (payloads: object) =>
        ep.dispatch({ topkIds, topkWeights, payloads: payloads as { x: Input } }, stream);
      expect(() => dispatch({ x: new Uint8Array(512) })).toThrow(
        'payloads.x is Uint8Array of length 512; it must be bf16 [2, 256]: a tensor, or a Uint16Array of length 512',
      );
      const e4m3 = emptyTensor(device, 'e4m3', [2, 256]);
      expect(() => dispatch({ x: e4m3 })).toThrow('payloads.x is "e4m3 [2, 256]"; it must be bf16 [2, 256]');
      expect(() => dispatch({ x: rows, xScales: new Float32Array(4) })).toThrow(
        'payloads.xScales is Float32Array of length 4; it must be absent: this ExpertParallel was created with x',
      );
      const freed = emptyTensor(device, 'bf16', [2, 256], 'gone');
      freed.free();
      expect(() => dispatch({ x: freed })).toThrow("'gone' was freed");
      const { payloads } = dispatch({ x: rows });
      expect(await readBits(payloads.x, stream)).toEqual(quantise(toF32('bf16', rows)).e4m3);
      await ep.dispose();
    });
  });
});

test('the compiler knows the scales, and experts find them by themselves', async () => {
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const { device } = world;
    const stream = device.createStream();
    const payloads = { x: fp8('bf16', 256), other: row('f32', 1) };
    const ep = await ExpertParallel.create(world, { ...layer, payloads });
    expectTypeOf(ep).toEqualTypeOf<ExpertParallel<'x' | 'other', 'xScales'>>();
    expectTypeOf(ep.received).toEqualTypeOf<Received<'x' | 'other' | 'xScales'>>();
    expect(Object.keys(ep.received.payloads)).toEqual(['x', 'xScales', 'other']);
    expect(ep.received.payloads.x).toMatchObject({ dtype: 'e4m3', shape: [1, 2, 256] });
    expect(ep.received.payloads.xScales).toMatchObject({ dtype: 'f32', shape: [1, 2, 2] });

    const plan = await ExpertsPlan.create(ep);
    const weights = {
      gateUp: tensorFrom(device, stream, randomElements('bf16', 2 * 128 * 256, 1, 2), 'bf16', [2, 128, 256]),
      down: tensorFrom(device, stream, randomElements('bf16', 2 * 256 * 64, 2, 2), 'bf16', [2, 256, 64]),
    };
    const rows = randomElements('bf16', 512, 7, 6);
    const inputs = { topkIds: Int32Array.of(1, 0), topkWeights: Float32Array.of(1, 1) };
    const received = ep.dispatch({ ...inputs, payloads: { x: rows, other: new Float32Array(2) } }, stream);
    plan.plan(received, stream);
    const sorted = {
      x: emptyTensor(device, 'e4m3', [plan.rows, 256]),
      xScales: emptyTensor(device, 'f32', [plan.rows, 2]),
    };
    plan.expand(received, sorted, stream);
    const { e4m3, scales } = quantise(toF32('bf16', rows));
    // The second token's expert comes first.
    expect(await readBits(sorted.x, stream)).toEqual(
      Uint8Array.of(...e4m3.subarray(256), ...e4m3.subarray(0, 256)),
    );
    expect(await readBits(sorted.xScales, stream)).toEqual(
      Float32Array.of(...scales.subarray(2), ...scales.subarray(0, 2)),
    );
    const made = [];
    for (const options of [weights, { ...weights, scales: 'xScales' as const }]) {
      const mlp = await ExpertsMlp.create(ep, plan, options);
      stream.fill(received.output.data, received.output.bytes, 0);
      mlp.run(received, stream);
      made.push(await readBits(received.output, stream));
      mlp.dispose();
    }
    expect(new Set(made[0]).size).toBeGreaterThan(100);
    expect(made[0]).toEqual(made[1]);
    await expect(ExpertsMlp.create(ep, plan, { ...weights, gemm: 'cublas' })).rejects.toThrow(
      'payload is "e4m3 [1, 2, 256]"; it must be rows of 256 bf16',
    );
    plan.dispose();
    await ep.dispose();
  });
});

test('rows of mxfp8 are for experts of the caller’s own', async () => {
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const { device } = world;
    const ep = await ExpertParallel.create(world, { ...layer, payloads: { x: mxfp8('bf16', 256) } });
    expectTypeOf(ep.received).toEqualTypeOf<Received<'x' | 'xScales'>>();
    expect(ep.received.payloads.x).toMatchObject({ dtype: 'e4m3', shape: [1, 2, 256] });
    expect(ep.received.payloads.xScales).toMatchObject({ dtype: 'u8', shape: [1, 2, 8] });
    const plan = await ExpertsPlan.create(ep);
    const gateUp = emptyTensor(device, 'bf16', [2, 128, 256]);
    const weights = { gateUp, down: emptyTensor(device, 'bf16', [2, 256, 64]) };
    for (const options of [weights, { ...weights, scales: 'xScales' as const }])
      await expect(ExpertsMlp.create(ep, plan, options)).rejects.toThrow(
        'payload is "x"; it must be rows of bf16 or fp8: these experts take no mxfp8',
      );
    plan.dispose();
    await ep.dispose();
  });
});
