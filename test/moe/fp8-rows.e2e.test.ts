/** Rows of bf16 that dispatch carries as e4m3 with scales: what arrives, and what is refused. */
import { describe, expect, expectTypeOf, it, test } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import {
  bytesOf,
  ExpertParallel,
  type ExpertParallelOptions,
  ExpertsMlp,
  ExpertsPlan,
  emptyTensor,
  fp8,
  type Input,
  mxfp8,
  type Received,
  readBits,
  row,
  type Tensor,
  tensorFrom,
} from '../../src/moe/index.js';
import {
  type Bits,
  quantise,
  roundRows,
  type ScaledFormatName,
  scaleBlock,
  scaledFormats,
  toF32,
} from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { randomElements } from '../../src/verify/testing/index.js';

/** Infinities, a NaN, zeros of both signs, the smallest and the largest of bf16, in rows and blocks of their own. */
function withOddValues(x: Uint16Array): Uint16Array {
  for (const [i, bits] of [0x7f80, 0xff80, 0x7fc0].entries()) x[i * 3 * scaleBlock + 5 * i] = bits;
  x.fill(0x8000, scaleBlock, 2 * scaleBlock);
  x[scaleBlock + 1] = 0x0001;
  x[2 * scaleBlock + 7] = 0x7f7f;
  return x;
}

/** Elements whose scale is NaN are NaN, whatever their bits: all of them 0x7f. A ue8m0 whose elements all are NaN may be any. */
function plain({ block, scale }: (typeof scaledFormats)[ScaledFormatName], rows: Bits, scales: Bits) {
  const [x, xScales] = [rows.slice(), scales.slice()];
  for (const [i, value] of xScales.entries()) {
    const elements = x.subarray(i * block, (i + 1) * block);
    if (Number.isNaN(value)) elements.fill(0x7f);
    if (scale === 'u8' && elements.every((bits) => (bits & 0x7f) === 0x7f)) {
      elements.fill(0x7f);
      xScales[i] = 0;
    }
  }
  return { x, xScales };
}

/** test/suite/cases.ts has whole rounds of such rows. */
describe.each([
  ['one-sided', 1],
  ['portable', 1],
  ['hybrid', 2],
])('what arrives is what the host makes of the rows, of two rounds in flight: %s', (family, nodes) => {
  test.each([
    ['fp8', 'tensors'],
    ['fp8', 'host arrays'],
    ['mxfp8', 'tensors'],
    ['mxfp8', 'host arrays'],
  ] as const)('%s, %s', async (rounding, from) => {
    const format = scaledFormats[rounding === 'fp8' ? 'e4m3' : 'mxfp8'];
    const [tokens, hidden] = [3, 256];
    const rowsOf = (rank: number, round: number) =>
      withOddValues(randomElements('bf16', tokens * hidden, 7 * round + rank, 6) as Uint16Array);
    await World.local({ ranks: 2, nodes, device: 'sim' }, async (world) => {
      const { device, rank } = world;
      const ep = await ExpertParallel.create(world, {
        ...{ experts: 2, topK: 1, maxTokens: tokens, family, split: true, rounds: 2 },
        ...{ payloads: { x: { fp8, mxfp8 }[rounding]('bf16', hidden) }, output: row('bf16', hidden) },
      });
      const streams = ep.views.map(() => device.createStream());
      const sent = streams.map((stream, round) => {
        const x = rowsOf(rank, round);
        const inputs = {
          // All tokens go to the other rank.
          topkIds: new Int32Array(tokens).fill(1 - rank),
          topkWeights: new Float32Array(tokens).fill(1),
          payloads: { x: from === 'tensors' ? tensorFrom(device, stream, x, 'bf16', [tokens, hidden]) : x },
        };
        return ep.dispatchSend(inputs, stream);
      });
      for (const [round, stream] of streams.entries()) {
        const { payloads, output } = ep.dispatchRecv(sent[round]!, stream);
        const other = 1 - rank;
        /** The slots of the other rank. */
        const theirs = async (plane: Tensor) => {
          const bits = await readBits(plane, stream);
          return bits.subarray((other * bits.length) / 2, ((other + 1) * bits.length) / 2);
        };
        const arrived = [await theirs(payloads.x!), await theirs(payloads.xScales!)] as const;
        const { e4m3, scales } = roundRows(toF32('bf16', rowsOf(other, round)), format);
        expect(plain(format, ...arrived)).toEqual(plain(format, e4m3, scales));
        stream.fill(output.data, output.bytes, 0);
        ep.combine(emptyTensor(device, 'bf16', [tokens, hidden]), stream);
      }
      for (const stream of streams) await ep.synchronize(stream);
      await ep.dispose();
    });
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
      `output.rounds is "e4m3"; it must be absent: combineFormat: 'e4m3' rounds rows that come back`,
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
