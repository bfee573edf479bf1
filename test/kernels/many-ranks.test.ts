/** Rounds of more ranks than a warp has lanes, which take each other in turns. */
import { test } from 'vitest';
import type { RoundsOptions } from '../../src/testing/index.js';
import { expectReference, type RoundsUnderTest } from './rounds.js';

const ranks = 34;
const spread = { way: 'store', blocks: 1, threads: 64, parts: 1, inFlight: 1, teams: 1 } as const;
const oneSided = (way: 'push' | 'bulk'): RoundsOptions => ({
  tuning: { dispatch: spread, combine: { ...spread, way, teams: way === 'bulk' ? 2 : 1, ahead: 0 } },
});
const messages = { blocks: 1, threads: 32, parts: 1 } as const;

// Between nodes a checked run takes a quarter of a minute.
const ways: Record<string, RoundsUnderTest> = {
  push: { ...oneSided('push'), mode: 'checked' },
  copies: { ...oneSided('bulk'), mode: 'checked' },
  messages: { family: 'portable', tuning: { dispatch: messages, combine: messages }, mode: 'checked' },
  'messages between nodes': { family: 'hybrid', nodes: ranks },
};

test.each(Object.keys(ways))('34 ranks give the reference’s bits: %s', async (name) => {
  await expectReference(
    { ranks, experts: ranks, topK: 4, maxTokens: 1, hidden: 8, dtype: 'bf16' },
    { tokens: Array(ways[name]!.mode === 'checked' ? 2 : 1).fill(Array(ranks).fill(1)), ...ways[name] },
  );
});
