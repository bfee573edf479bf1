/** Kernels are compiled once for a machine: ranks that start when another world has run the same shape only load them. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gpus, needs, runRanks } from './machine.js';

const ranks = Math.min(8, gpus >= 4 ? gpus : 2);

test(`a warm start of ${ranks} processes compiles nothing`, needs(ranks), async (context) => {
  const folder = mkdtempSync(join(tmpdir(), 'heddle-warm-'));
  process.env.HEDDLE_CACHE = folder;
  try {
    /** The kernels in the cache. What is compiled again is written again, as a new file. */
    const start = async () => {
      const since = performance.now();
      const { result, stderr } = await runRanks(ranks, 'round-trip-rank.js', ['^uneven'], 30_000);
      assert.equal(result.exitCode, 0, stderr);
      context.diagnostic(`${Math.round(performance.now() - since)} ms`);
      return readdirSync(folder).map((name) => [name, statSync(join(folder, name)).ino]);
    };
    const cold = await start();
    assert.ok(cold.length >= 3, `${cold.length} kernels`); // dispatch, experts, combine
    assert.deepEqual(await start(), cold);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
