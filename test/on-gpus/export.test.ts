/**
 * Engines with what `heddle export` writes, on GPUs: what the one in C++ gets is what Heddle's own host gets, bit by bit, and the
 * one in Python compares itself with torch.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeSources } from '../../src/verify/testing/index.js';
import { heddleRounds, writeInputs } from '../tools/export/rounds.js';
import { cases, exported, folderOf, pages, ranks } from './export-cases.js';
import { needs } from './machine.js';

const tokens = [
  [64, 64],
  [1, 0],
  [0, 33],
  [64, 7],
];

const unbuilt = 'needs gcc, g++ and the CUDA toolkit where the tests are built';
/** The ways by which windows travel. */
const ways = ['auto', 'ipc'];

for (const of of cases) {
  const { name, family, split } = of;
  const engine = join(folderOf(name), 'engine');
  const skip = existsSync(engine) ? needs(ranks).skip : unbuilt;
  test(`${name}, in C++`, { timeout: 120_000, skip }, async () => {
    const { layer } = (await exported(of)).plan;
    const rounds = tokens.map((of, i) => makeSources(layer, of, i + 1));
    const own = await heddleRounds(layer, rounds, { family, split, device: 'cuda' });
    for (const way of ways) {
      const folder = mkdtempSync(join(tmpdir(), 'heddle-export-'));
      try {
        writeInputs(folder, layer, rounds);
        const env = { ...process.env, HEDDLE_WINDOWS: way };
        execFileSync(engine, [folder, `${rounds.length}`], { timeout: 30_000, stdio: 'inherit', env });
        for (const [n, outs] of own.entries()) {
          for (const [r, out] of outs.entries())
            assert.deepEqual(
              readFileSync(join(folder, `out-${n}-${r}`)),
              Buffer.from(out),
              `${way}: round ${n}, rank ${r}`,
            );
        }
      } finally {
        rmSync(folder, { recursive: true });
      }
    }
  });
}

const torch = spawnSync('python3', ['-c', 'import torch; assert torch.cuda.is_available()']).status === 0;
for (const { name } of pages) {
  const folder = folderOf(name);
  const built = existsSync(join(folder, 'heddle.so'));
  const skip = !built ? unbuilt : torch ? needs(ranks).skip : 'needs python3 with torch';
  test(`${name}, in Python`, { timeout: 240_000, skip }, () => {
    const launch = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', `${ranks}`];
    for (const way of ways)
      execFileSync('python3', [...launch, join(folder, 'engine.py'), folder], {
        timeout: 100_000,
        stdio: 'inherit',
        env: { ...process.env, HEDDLE_WINDOWS: way },
      });
  });
}
