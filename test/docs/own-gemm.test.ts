import { expect, test } from 'vitest';
import { outputs } from '../../examples/own-gemm.js';

test('the example brings every token the mean of what its experts multiply by', () => {
  // As the example routes: expert e multiplies by e + 1, and both weights are a half.
  const [experts, topK, hidden] = [8, 2, 32];
  for (const [rank, output] of outputs.entries()) {
    const expected = Array.from(output, (_, i) => {
      const route = Math.floor(i / hidden) * topK;
      const by = (k: number): number => ((3 * (route + k) + rank) % experts) + 1;
      return (by(0) + by(1)) / 2;
    });
    expect([...output]).toEqual(expected);
  }
});
