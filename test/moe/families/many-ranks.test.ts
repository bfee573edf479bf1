/** Rounds of more ranks than a warp has lanes, which take each other in turns. */
import { test } from 'vitest';
import { expectReference, type RoundsUnderTest } from './rounds.js';

const ranks = 34;
const round = Array<number>(ranks).fill(1);
const spread = { blocks: 1, threads: 64, parts: 1, inFlight: 1, teams: 1 } as const;
const messages = { blocks: 1, threads: 64, parts: 1 } as const;

const ways: Record<string, RoundsUnderTest> = {
  // The second round fills the slots again.
  push: {
    tuning: { dispatch: spread, combine: { ...spread, way: 'push', ahead: 0 } },
    tokens: [round, round],
  },
  messages: { family: 'portable', tuning: { dispatch: messages, combine: messages }, tokens: [round, round] },
};

test('more ranks than pull by default give the reference’s bits where phases are split', async () => {
  const one = Array<number>(17).fill(1);
  await expectReference(
    { ranks: 17, experts: 17, topK: 2, maxTokens: 1, hidden: 8, dtype: 'bf16' },
    { split: true, tokens: [one, one], mode: 'checked' },
  );
});

test.each(Object.keys(ways))('34 ranks give the reference’s bits: %s', async (name) => {
  await expectReference(
    { ranks, experts: ranks, topK: 4, maxTokens: 1, hidden: 8, dtype: 'bf16' },
    { ...ways[name], mode: 'checked' },
  );
});
