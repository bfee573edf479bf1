/**
 * Engines with what `heddle export` writes, on GPUs: what the one in C++ gets is what Heddle's own host gets, bit by bit, and the
 * one in Python compares itself with torch.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, ExpertParallel, emptyTensor, row } from '../../src/moe/index.js';
import type { Layer, Source } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { makeSources } from '../../src/verify/testing/index.js';
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
    const own = await heddleRounds(layer, rounds, { family, split });
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

function writeInputs(folder: string, { payloads }: Layer, rounds: readonly (readonly Source[])[]): void {
  for (const [n, sources] of rounds.entries()) {
    for (const [r, { tokens, topkIds, topkWeights, payloads: rows }] of sources.entries()) {
      const parts = [topkIds, topkWeights!, ...payloads.map(({ name }) => rows[name]!)].map(bytesOf);
      writeFileSync(join(folder, `in-${n}-${r}`), Buffer.concat([bytesOf(Uint32Array.of(tokens)), ...parts]));
    }
  }
}

/** [round][rank]: what combine leaves where the experts give back what they get. */
async function heddleRounds(
  layer: Layer,
  rounds: readonly (readonly Source[])[],
  options: { readonly family: string; readonly split: boolean },
): Promise<Uint8Array[][]> {
  const outs: Uint8Array[][] = rounds.map(() => []);
  const { dtype, hidden } = layer.output;
  await World.local({ ranks, device: 'cuda' }, async (world) => {
    const stream = world.device.createStream();
    const ep = await ExpertParallel.create(world, {
      ...layer,
      ...options,
      payloads: { x: row(dtype, hidden) },
      output: row(dtype, hidden),
    });
    for (const [n, sources] of rounds.entries()) {
      const { tokens, ...inputs } = sources[world.rank]!;
      const out = emptyTensor(world.device, dtype, [tokens, hidden]);
      const { output, payloads } = ep.dispatch(inputs, stream);
      stream.copy(output.data, payloads.x.data, output.bytes);
      ep.combine(out, stream);
      outs[n]![world.rank] = await stream.copyOut(out.data, out.bytes);
    }
    await ep.dispose();
  });
  return outs;
}
