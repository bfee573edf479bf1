import { expect, test, vi } from 'vitest';

test('examples/own-gemm.ts brings every token the mean of what its experts multiply by, and says so', async () => {
  const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
  const { outputs } = await import('../../examples/own-gemm.js');
  const said = log.mock.calls.map(([line]) => String(line));
  log.mockRestore();
  expect(said).toEqual(
    outputs.map(([first], rank) => `rank ${rank}: its first token comes back as ${first} times what it was`),
  );
  expect(outputs).toHaveLength(4);
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
