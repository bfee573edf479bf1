/**
 * Rows that travel as e4m3, on the simulated machine: values of every kind, and as close to the rows as docs/semantics.md promises.
 * test/suite/cases.ts has whole rounds of them.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  readBits,
  row,
  write,
} from '../../../src/moe/index.js';
import { type Bits, reference, type Shape, type Source, scaleBlock } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import {
  compareCombined,
  layerOf,
  makeSources,
  type RoundsShape,
  shapeOfRounds,
} from '../../../src/verify/testing/index.js';

const plain: RoundsShape = {
  ranks: 3,
  experts: 12,
  topK: 4,
  maxTokens: 3,
  hidden: 144,
  dtype: 'bf16',
  combineFormat: 'e4m3',
};

/** One round in which the experts of every rank leave `outputs[rank]`; what each rank gets back. */
async function combineOf(
  shape: Shape,
  sources: readonly Source[],
  outputs: readonly Bits[],
): Promise<Bits[]> {
  return World.local({ ranks: shape.ranks, device: 'sim' }, async (world) => {
    const ep = await ExpertParallel.create(world, layerOf(shape));
    const stream = world.device.createStream();
    const { tokens, topkIds, topkWeights, payloads } = sources[world.rank]!;
    const out = emptyTensor(world.device, shape.output.dtype, [tokens, shape.output.hidden]);
    const inputs = { topkIds, topkWeights: topkWeights!, payloads };
    write(ep.dispatch(inputs, stream).output, stream, outputs[world.rank]!);
    ep.combine(out, stream);
    await ep.synchronize(stream);
    const result = await readBits(out, stream);
    out.free();
    await ep.dispose();
    return result;
  });
}

const launch = { blocks: 2, threads: 64, parts: 2, inFlight: 4, teams: 1 } as const;
const spread = { dispatch: launch, combine: { ...launch, way: 'push', ahead: 1 } } as const;

// Each value fills a block of its own, beside ordinary ones; then each is the block's largest.
const special = [0, -0, 448, 449, -464, 1.5e38, -1.5e38, 1e-45, 1.2e-38, 2 ** -126, 2 ** -131];
const broken = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
test('special values', async () => {
  const values = [...special, ...broken];
  const shape = shapeOfRounds({
    ...plain,
    ranks: 2,
    maxTokens: 2,
    dtype: 'f32',
    hidden: values.length * 128,
  });
  const sources = makeSources(shape, 2, 1);
  const { hidden } = shape.output;
  const outputs = [0, 1].map((rank) =>
    Float32Array.from({ length: 4 * hidden }, (_, i) => {
      const value = values[Math.floor((i % hidden) / scaleBlock)]!;
      return i % 16 === rank ? (i % 5) - 2.3 : i % 2 === 0 ? value : value / ((i % 7) + 1);
    }),
  );
  const results = await combineOf(shape, sources, outputs);
  for (const [rank, source] of sources.entries()) {
    const expected = reference.combine(shape, source, rank, outputs);
    expect(compareCombined(shape, rank, results[rank]!, expected)).toMatchObject({ different: 0 });
    // Never plausible numbers beside an infinity or a NaN.
    const damaged = results[rank]!.subarray(special.length * scaleBlock, hidden);
    expect(damaged.every((value) => Number.isNaN(value))).toBe(true);
    expect(results[rank]!.subarray(0, special.length * scaleBlock).some(Number.isNaN)).toBe(false);
  }
});

test('no element is off by more than 1/17 of the largest magnitudes of its blocks', async () => {
  const shape = shapeOfRounds({ ...plain, ranks: 2, maxTokens: 2, dtype: 'f32', hidden: 272 });
  const { topK, output } = shape;
  const magnitudes = fc.record({ exponent: fc.integer({ min: -100, max: 100 }), octaves: fc.nat(20) });
  await fc.assert(
    fc.asyncProperty(fc.nat(1e6), magnitudes, async (seed, { exponent, octaves }) => {
      const sources = makeSources(shape, 2, seed);
      const noise = (n: number) => {
        const x = Math.sin(n * 12.9898 + seed) * 43758.5453;
        return x - Math.floor(x);
      };
      const outputs = [0, 1].map((rank) =>
        Float32Array.from({ length: 4 * output.hidden }, (_, i) => {
          const sign = noise(3 * i + rank) < 0.5 ? -1 : 1;
          return sign * 2 ** (exponent - octaves * noise(3 * i + 1) + noise(3 * i + 2 + rank));
        }),
      );
      const results = await combineOf(shape, sources, outputs);
      for (const [rank, { tokens, topkIds }] of sources.entries()) {
        for (let token = 0; token < tokens; token++) {
          const owners = new Set(
            [...topkIds.subarray(token * topK, (token + 1) * topK)].map((id) => Math.floor(id / 6)),
          );
          for (let block = 0; block < output.hidden; block += scaleBlock) {
            const at = (rank * 2 + token) * output.hidden + block;
            const rows = [...owners].map((owner) =>
              outputs[owner]!.subarray(at, at + Math.min(scaleBlock, output.hidden - block)),
            );
            const largest = rows.reduce((sum, row) => sum + Math.max(...row.map(Math.abs)), 0);
            for (let i = 0; i < rows[0]!.length; i++) {
              const exact = rows.reduce((sum, row) => sum + row[i]!, 0);
              const error = Math.abs(results[rank]![token * output.hidden + block + i]! - exact);
              // The sum itself is rounded once, to f32.
              expect(error).toBeLessThanOrEqual(largest / 17 + largest * 2 ** -23);
            }
          }
        }
      }
    }),
    { numRuns: 8, seed: 17 },
  );
});

describe('what cannot travel as e4m3 is refused at creation', () => {
  const options: ExpertParallelOptions = {
    experts: 4,
    topK: 2,
    maxTokens: 2,
    payloads: { x: row('bf16', 8) },
    output: row('bf16', 64),
    combineFormat: 'e4m3',
  };
  const refused = (changes: Partial<ExpertParallelOptions>, message: string) =>
    World.local({ ranks: 1, device: 'sim' }, (world) =>
      expect(ExpertParallel.create(world, { ...options, ...changes })).rejects.toThrow(message),
    );

  test('rows of no whole vector', () =>
    refused(
      { output: row('bf16', 72) },
      "output.length is 72; it must be a multiple of 16 for combineFormat 'e4m3'; combineFormat 'rows' takes any length",
    ));
  test('a combine that pulls', () =>
    refused(
      { tuning: { ...spread, combine: { ...spread.combine, way: 'pull' } } },
      `tuning.combine.way is "pull"; it must be 'push' for combineFormat 'e4m3'`,
    ));
  test('a format that does not exist', () =>
    refused({ combineFormat: 'fp8' as 'e4m3' }, `combineFormat is "fp8"; it must be one of 'rows', 'e4m3'`));

  test('more threads than its sums have registers for', () =>
    refused(
      { tuning: { ...spread, combine: { ...spread.combine, threads: 896 } } },
      `tuning.combine.threads is 896; it must be at most 512 for combineFormat 'e4m3'`,
    ));
});
