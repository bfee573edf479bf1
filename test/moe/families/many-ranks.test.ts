/** Rounds of more ranks than a warp has lanes, which take each other in turns. */
import { test } from 'vitest';
import { expectReference, type RoundsUnderTest } from './rounds.js';

const ranks = 34;
const round = Array<number>(ranks).fill(1);
const spread = { way: 'store', blocks: 1, threads: 64, parts: 1, inFlight: 1, teams: 1 } as const;
const messages = { blocks: 1, threads: 64, parts: 1 } as const;

const ways: Record<string, RoundsUnderTest> = {
  // The second round fills the slots again.
  push: {
    tuning: { dispatch: spread, combine: { ...spread, way: 'push', ahead: 0 } },
    tokens: [round, round],
  },
  copies: {
    tuning: { dispatch: spread, combine: { ...spread, way: 'bulk', teams: 2, ahead: 0 } },
    tokens: [round],
  },
  messages: { family: 'portable', tuning: { dispatch: messages, combine: messages }, tokens: [round, round] },
};

test.each(Object.keys(ways))('34 ranks give the reference’s bits: %s', async (name) => {
  await expectReference(
    { ranks, experts: ranks, topK: 4, maxTokens: 1, hidden: 8, dtype: 'bf16' },
    { ...ways[name], mode: 'checked' },
  );
});
