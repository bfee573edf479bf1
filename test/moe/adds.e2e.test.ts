/** Combine that adds its sums to what `out` holds: in every family and format, and where it cannot. */
import { describe, expect, test } from 'vitest';
import { ExpertParallel, type ExpertParallelOptions, row } from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import type { RoundsShape } from '../../src/verify/testing/index.js';
import { expectReference, type RoundsUnderTest } from './families/rounds.js';

const layer: RoundsShape = {
  ...{ ranks: 3, experts: 7, topK: 4, maxTokens: 5 },
  ...{ hidden: 144, dtype: 'bf16', adds: true },
};
const bothWays = (way: 'push' | 'pull' | 'bulk', threads: number): RoundsUnderTest => ({
  tuning: {
    dispatch: { way: 'store', blocks: 2, threads: 32, parts: 1, inFlight: 4, teams: 1 },
    combine: { way, blocks: 2, threads, parts: 1, inFlight: 4, teams: 1, ahead: 1 },
  },
});

describe('the sums come on top, as the reference says', () => {
  const twoNodes = { ranks: 4, hidden: 1040, maxTokens: 3 };
  const cases: readonly [string, RoundsUnderTest, Partial<RoundsShape>?][] = [
    ['one-sided, pushed', bothWays('push', 32)],
    ['one-sided, pulled, several vectors at a time', bothWays('pull', 32), { hidden: 1040, ranks: 2 }],
    ['one-sided, by bulk copies', bothWays('bulk', 32)],
    ['one-sided, e4m3', {}, { wire: 'e4m3' }],
    ['one-sided, f32, split', { split: true }, { dtype: 'f32' }],
    ['one-sided, a graph', { graph: true }],
    ['routes to nobody', { routes: { holes: 0.7 } }],
    ['portable', { family: 'portable' }],
    ['portable, e4m3, split', { family: 'portable', split: true }, { wire: 'e4m3' }],
    ['hybrid on two nodes', { family: 'hybrid', nodes: 2 }, twoNodes],
    ['hybrid on two nodes, e4m3', { family: 'hybrid', nodes: 2 }, { ...twoNodes, wire: 'e4m3' }],
    ['hybrid, sums at the source', { family: 'hybrid', nodes: 2 }, { ...twoNodes, sum: 'source' }],
  ];
  test.each(cases)('%s', (_, options, change = {}) =>
    expectReference({ ...layer, ...change }, { mode: 'checked', ...options }),
  );
});

test.each<[string, Partial<ExpertParallelOptions>, string]>([
  ['rows of odd length', { output: row('bf16', 9) }, 'output.hidden is 9'],
  ['ranks that share tokens', { replicas: 2 }, 'adds is true; it must be false where ranks share tokens'],
])('is refused for %s', async (_, change, message) => {
  const options: ExpertParallelOptions = {
    ...{ experts: 4, topK: 2, maxTokens: 4, adds: true },
    ...{ payloads: { x: row('bf16', 8) }, output: row('bf16', 8) },
    ...change,
  };
  const create = World.local({ ranks: 2, device: 'sim' }, (world) => ExpertParallel.create(world, options));
  await expect(create).rejects.toThrow(message);
});
