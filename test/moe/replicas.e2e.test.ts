/** Groups of ranks that bring the same tokens: what they send, and what it takes. test/suite/cases.ts has what they get. */
import { describe, expect, test } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import { type MachineOptions, SimMachine } from '../../src/gpu/sim/index.js';
import { ExpertParallel, row } from '../../src/moe/index.js';
import { reference, traffic } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import {
  makeSources,
  type RoundsOptions,
  type RoundsShape,
  runRounds,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';

const layer: RoundsShape = {
  ...{ ranks: 4, replicas: 2, experts: 8, topK: 3, maxTokens: 6 },
  ...{ hidden: 24, dtype: 'bf16', extra: [6] },
};

/** Bytes that all ranks stored to others in a round, by launch. */
async function stored(of: RoundsShape, options: RoundsOptions): Promise<(kernel: string) => number> {
  const shape = shapeOfRounds(of);
  const launches = new Map<number, { readonly rank: number; readonly kernel: string }>();
  const launchOf: number[] = [];
  const bytes = new Map<string, number>();
  const watch: MachineOptions['watch'] = () => ({
    launchStarted: (launch, _, info) => void launches.set(launch, info),
    blockStarted(_, launch, __, first, threads) {
      for (let i = 0; i < threads; i++) launchOf[first + i] = launch;
    },
    access(thread, { kind, bytes: some }, _, buffer) {
      const { rank, kernel } = launches.get(launchOf[thread]!) ?? { rank: buffer.rank, kernel: '' };
      if (kind !== 'read' && buffer.rank !== rank) bytes.set(kernel, (bytes.get(kernel) ?? 0) + some);
    },
  });
  const machine = SimMachine.create({ ranks: of.ranks, mode: 'checked', watch });
  await World.local({ ranks: of.ranks, device: 'sim', sim: machine }, (world) =>
    runRounds(world, shape, [makeSources(shape, of.maxTokens, 1)], options),
  );
  return (kernel) => bytes.get(kernel)!;
}

test.each([
  ['one-sided', ['one_sided_dispatch'], ['one_sided_combine']],
  ['portable', ['portable_dispatch_send'], ['portable_combine_send', 'portable_combine_recv']],
])('%s: half the rows leave a rank of a pair, and a sum of each token', async (family, there, back) => {
  for (const replicas of [1, 2]) {
    const of = { ...layer, replicas };
    const [short, long] = [of, { ...of, hidden: 2 * of.hidden }];
    const [less, more] = [await stored(short, { family }), await stored(long, { family })];
    // Ids, weights and flags are the same for rows of twice the length.
    const rows = (kernels: string[]) => kernels.reduce((sum, name) => sum + more(name) - less(name), 0);
    const shape = shapeOfRounds({ ...of, extra: [] });
    const { remote } = traffic(shape, makeSources(shape, of.maxTokens, 1));
    expect(rows(there)).toBe(remote.dispatch);
    expect(rows(back)).toBe(remote.combine);
  }
});

test('what leaves: uniform routes, the same tokens a rank', () => {
  const shape = shapeOfRounds({ ...layer, experts: 64, topK: 8, maxTokens: 256, hidden: 64, extra: [] });
  const moved = (replicas: number) => {
    const of = { ...shape, replicas };
    return traffic(of, makeSources(of, of.maxTokens, 1));
  };
  const [alone, pairs] = [moved(1), moved(2)];
  expect(pairs.tokens).toBe(alone.tokens / 2);
  expect(pairs.remote.dispatch / alone.remote.dispatch).toBeCloseTo(0.5, 1);
  const sums = pairs.tokens * shape.output.hidden * 2;
  expect((pairs.remote.combine - sums) / alone.remote.combine).toBeCloseTo(0.5, 1);
});

describe('refused', () => {
  const options = {
    ...{ ranks: 4, experts: 8, topK: 2, maxTokens: 6 },
    ...{ payloads: { x: row('bf16', 8) }, output: row('bf16', 8) },
  };
  test.each([
    [
      'replicas that do not divide the ranks',
      { replicas: 3 },
      'replicas is 3; it must be a number that divides',
    ],
    ['no replicas', { replicas: 0 }, 'replicas is 0; it must be'],
    ['more than there are ranks', { replicas: 8 }, 'replicas is 8; it must be'],
    [
      'tokens that replicas do not divide',
      { replicas: 4 },
      'maxTokens is 6; it must be a multiple of replicas, 4',
    ],
  ])('%s', (_, change, says) => {
    const memory = () => ExpertParallel.memory({ ...options, ...change });
    expect(memory).toThrow(ArgumentError);
    expect(memory).toThrow(says);
  });

  test('by the reference: ranks of a group that bring different tokens', () => {
    const shape = shapeOfRounds(layer);
    const sources = makeSources(shape, layer.maxTokens, 1);
    sources[3] = { ...sources[3]!, topkIds: sources[3]!.topkIds.map((id) => (id + 1) % 8) };
    expect(() => reference.dispatch(shape, sources, 0)).toThrow(/sources\[3\] is .* rank 2 brings/);
  });
});

test.each(['one-sided', 'portable'])(
  '%s: slots are per group, so memory halves but for the sums',
  (family) => {
    const { payloads, output } = { payloads: { x: row('bf16', 7168) }, output: row('bf16', 7168) };
    const of = { ranks: 8, experts: 256, topK: 8, maxTokens: 128, payloads, output, family };
    const [alone, pairs] = [ExpertParallel.memory(of), ExpertParallel.memory({ ...of, replicas: 2 })];
    const section = (name: string) => pairs.parts.find((part) => part.section === name)!.bytes;
    const sums = 128 * 7168 * 2;
    expect(section('sums')).toBe(sums);
    expect((pairs.bytes - sums) / alone.bytes).toBeCloseTo(0.5, 2);
  },
);
