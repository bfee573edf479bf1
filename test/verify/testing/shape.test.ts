import { expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import { type RoundsShape, shapeOfRounds } from '../../../src/verify/testing/index.js';

const good: RoundsShape = { ranks: 2, experts: 4, topK: 2, maxTokens: 2, hidden: 8, dtype: 'bf16' };

it.each(['ranks', 'experts', 'topK', 'maxTokens', 'replicas', 'hidden'])(
  'a shape of rounds refuses %s of BigInt, and none of 0',
  (name) => {
    for (const was of [2n, 0n, 0]) {
      expect(() => shapeOfRounds({ ...good, [name]: was })).toThrow(ArgumentError);
    }
  },
);

it('a shape of rounds refuses further payloads of BigInt bytes', () => {
  expect(() => shapeOfRounds({ ...good, extra: [4n as never] })).toThrow(
    /is 4n; it must be .*a number, not a bigint/,
  );
});
