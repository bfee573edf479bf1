/** The reference comparison of test/suite on GPUs: in one process, and in a process for each. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { World } from '../../src/net/world/index.js';
import { casesOnGpus } from './cases.js';
import { keepAwakeBetween, needs, runCases, runRanks } from './machine.js';

const sizes = [1, 2, 3, 4, 8];

keepAwakeBetween();

for (const ranks of sizes) {
  describe(`ranks of one process: ${ranks}`, needs(ranks, 300_000), () => {
    for (const { name, run } of casesOnGpus(ranks)) {
      test(name, { timeout: 30_000 }, async () => {
        await World.local({ ranks, device: 'cuda', timeoutMs: 15_000 }, run);
      });
    }
  });
}

for (const ranks of sizes.filter((n) => n > 1)) {
  test(`a process a rank: ${ranks}`, needs(ranks, 120_000), (context) =>
    runCases(context, ranks, casesOnGpus(ranks)),
  );
}

test('processes that see one GPU each', needs(2), async () => {
  const { result, reports, stderr } = await runRanks(
    2,
    'round-trip-rank.js',
    ['^(bf16|pull, rows)', 'alone'],
    50_000,
  );
  assert.equal(result.exitCode, 0, stderr);
  assert.ok(reports.length >= 2);
});

test('processes that would share a GPU are refused, all of them', needs(1), async () => {
  const before = process.env.CUDA_VISIBLE_DEVICES;
  process.env.CUDA_VISIBLE_DEVICES = '0';
  try {
    const { result, stderr } = await runRanks(2, 'round-trip-rank.js', [], 50_000);
    assert.notEqual(result.exitCode, 0);
    assert.match(stderr, /Ranks 0 and 1 would share a GPU/);
  } finally {
    if (before === undefined) delete process.env.CUDA_VISIBLE_DEVICES;
    else process.env.CUDA_VISIBLE_DEVICES = before;
  }
});
