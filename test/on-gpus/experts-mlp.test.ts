/** The experts' GEMMs on a GPU: Heddle's beside the reference, and cuBLAS's beside Heddle's. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  DenseMlp,
  type ExpertsPlanOptions,
  emptyTensor,
  type Gemm,
  readBits,
  tensorFrom,
} from '../../src/moe/index.js';
import { type Layer, reference } from '../../src/moe/layer/index.js';
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
  makeMlp,
  makePackedMlp,
  ofKind,
  placeReceived,
  runMlp,
} from '../../src/verify/trials/index.js';
import { needs } from './machine.js';

const plain: RoundsShape = {
  ...{ ranks: 2, experts: 12, topK: 3, maxTokens: 40, hidden: 320 },
  ...{ dtype: 'bf16' },
};

interface Case {
  readonly shape?: Partial<RoundsShape>;
  readonly inner?: number;
  readonly routes?: RoutesOptions;
  readonly options?: ExpertsPlanOptions;
  /** Experts have biases, and gpt-oss's activation; Heddle's kernels alone do. */
  readonly biases?: boolean;
  /** Weights are MXFP4: Heddle's kernels alone take them. */
  readonly packed?: boolean;
}

const cases: Readonly<Record<string, Case>> = {
  'few rows': {},
  'some rows': { shape: { maxTokens: 80 } },
  'many rows': { shape: { maxTokens: 400, hidden: 512 }, inner: 256 },
  'most rows to one expert': { routes: { router: { kind: 'zipf', exponent: 2 }, holes: 0.2 } },
  'sizes that only 64 divides': { shape: { maxTokens: 200, hidden: 192 }, inner: 192 },
  'biases, few rows': { shape: { hidden: 192 }, inner: 192, biases: true },
  'biases, some rows': { shape: { maxTokens: 80 }, biases: true },
  'biases, many rows': { shape: { maxTokens: 400, hidden: 512 }, inner: 256, biases: true },
  'MXFP4, few rows': { packed: true },
  'MXFP4, few rows in wide tiles, biases': { shape: { hidden: 576 }, inner: 576, packed: true, biases: true },
  'MXFP4, some rows': { shape: { maxTokens: 130, hidden: 512 }, inner: 256, packed: true },
  'MXFP4, many rows, biases': {
    shape: { maxTokens: 400, hidden: 512 },
    inner: 192,
    packed: true,
    biases: true,
  },
  masked: { options: { form: 'masked', capacity: 96, alignment: 16 } },
  'no rows': { routes: { holes: 1 } },
};

describe('experts', needs(1, 120_000), () => {
  for (const gemm of ['heddle', 'cublas'] as const satisfies readonly Gemm[]) {
    for (const [name, of] of Object.entries(cases)) {
      const { shape, inner = 128, routes, options = {}, biases = false, packed = false } = of;
      if ((biases || packed) && gemm === 'cublas') continue;
      test(`${gemm}: ${name}`, async () => {
        const layer: Layer = { ...shapeOfRounds({ ...plain, ...shape }), weights: true, counts: false };
        const rank = layer.ranks - 1;
        const { maxTokens, topK, ranks, output } = layer;
        const received = reference.dispatch(layer, makeSources(layer, maxTokens, 3, routes), rank);
        const { hidden } = output;
        const kind = { hidden, biases, activation: biases ? 'clamped-swiglu' : 'swiglu' } as const;
        const make = packed ? makePackedMlp : makeMlp;
        const experts = Array.from({ length: 6 }, (_, e) => ofKind(make(hidden, inner, e), kind, e));
        await World.local({ ranks: 1, device: 'cuda' }, async ({ device }) => {
          const stream = device.createStream();
          const placed = placeReceived(device, stream, layer, received);
          await stream.synchronize();
          const of = { world: { device, rank }, shape: layer, received: placed };
          const actual = await runMlp(of, experts, options, 2, { gemm });
          const { different, first } = compareMlp(
            layer,
            rank,
            received,
            experts,
            ranks * maxTokens * topK,
            actual,
            gemm,
          );
          assert.equal(different, 0, first);
        });
      });
    }
  }
});

describe('one expert takes all rows', needs(1, 60_000), () => {
  const [hidden, inner] = [512, 256];
  for (const gemm of ['heddle', 'cublas'] as const satisfies readonly Gemm[]) {
    for (const [tokens, sms] of [
      [21, 132],
      [300, 132],
      [300, 5],
    ] as const) {
      test(`${gemm}: ${tokens} rows on ${sms} multiprocessors`, async () => {
        const expert = makeMlp(hidden, inner, 1);
        const rows = randomElements('bf16', tokens * hidden, 4);
        await World.local({ ranks: 1, device: 'cuda' }, async ({ device }) => {
          const stream = device.createStream();
          const place = (bits: typeof rows, of: readonly number[]) =>
            tensorFrom(device, stream, bits, 'bf16', of);
          const mlp = await DenseMlp.create(device, {
            gateUp: place(expert.gateUp, [2 * inner, hidden]),
            down: place(expert.down, [hidden, inner]),
            ...{ maxTokens: tokens, gemm, sms },
          });
          const out = emptyTensor(device, 'bf16', [tokens, hidden]);
          mlp.run(place(rows, [tokens, hidden]), out, tokens, stream);
          const expected = reference.mlp(rows, hidden, expert);
          // Between cuBLAS's GEMM and SwiGLU rows are rounded once more.
          const part = gemm === 'cublas' ? 2 ** -7 : 2 ** -9;
          const { different, first } = compareClosely(
            'out',
            'bf16',
            await readBits(out, stream),
            expected,
            hidden,
            part,
          );
          assert.equal(different, 0, first);
          mlp.dispose();
        });
      });
    }
  }
});
