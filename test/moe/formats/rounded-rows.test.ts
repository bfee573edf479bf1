/**
 * Rows that travel as e4m3, on the simulated machine: values of every kind. test/suite/cases.ts has whole rounds of them, and
 * test/moe/layer/reference.test.ts how close they are to the rows.
 */
import { expect, test } from 'vitest';
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

test.each<[string, Partial<ExpertParallelOptions>, string]>([
  [
    'rows of no whole vector',
    { output: row('bf16', 72) },
    "output.length is 72; it must be a multiple of 16 for combineFormat 'e4m3'; combineFormat 'rows' takes any length",
  ],
  [
    'a combine that pulls',
    { tuning: { ...spread, combine: { ...spread.combine, way: 'pull' } } },
    `tuning.combine.way is "pull"; it must be 'push' for combineFormat 'e4m3'`,
  ],
  [
    'a format that does not exist',
    { combineFormat: 'fp8' as 'e4m3' },
    `combineFormat is "fp8"; it must be one of 'rows', 'e4m3'`,
  ],
  [
    'more threads than its sums have registers for',
    { tuning: { ...spread, combine: { ...spread.combine, threads: 896 } } },
    `tuning.combine.threads is 896; it must be at most 512 for combineFormat 'e4m3'`,
  ],
])('at creation is refused: %s', async (_, changes, message) => {
  const options = { experts: 4, topK: 2, maxTokens: 2, payloads: {}, output: row('bf16', 64) };
  const created = World.local({ ranks: 1, device: 'sim' }, (world) =>
    ExpertParallel.create(world, { ...options, combineFormat: 'e4m3', ...changes }),
  );
  await expect(created).rejects.toThrow(message);
});
