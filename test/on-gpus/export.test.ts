/** The host in C of examples/export-host.c on GPUs: what it gets is what Heddle's own host gets, bit by bit. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { architecture, describeGpu } from '../../src/gpu/cuda/gpu.js';
import { bytesOf, ExpertParallel, emptyTensor, row } from '../../src/moe/index.js';
import type { Layer, Source } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { writeExport } from '../../src/tools/export/index.js';
import { makeSources } from '../../src/verify/testing/index.js';
import { cases, exported, hostOf, ranks } from './export-cases.js';
import { needs } from './machine.js';

const tokens = [
  [64, 64],
  [1, 0],
  [0, 33],
  [64, 7],
];

for (const of of cases) {
  const { name, family, split } = of;
  const skip = existsSync(hostOf(of)) ? needs(ranks).skip : 'needs gcc and cuda.h where the tests are built';
  test(name, { timeout: 60_000, skip }, async () => {
    const plan = await exported(of);
    const { layer } = plan.plan;
    const rounds = tokens.map((of, i) => makeSources(layer, of, i + 1));
    const folder = mkdtempSync(join(tmpdir(), 'heddle-export-'));
    try {
      const arch = architecture(describeGpu(0).capability);
      await writeExport(plan, folder, 'heddle', [arch]);
      writeInputs(folder, layer, rounds);
      execFileSync(hostOf(of), [folder, arch, folder, `${rounds.length}`], {
        timeout: 30_000,
        stdio: 'inherit',
      });
      const own = await heddleRounds(layer, rounds, { family, split });
      for (const [n, outs] of own.entries()) {
        for (const [r, out] of outs.entries())
          assert.deepEqual(
            readFileSync(join(folder, `out-${n}-${r}`)),
            Buffer.from(out),
            `round ${n}, rank ${r}`,
          );
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
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
      const source = sources[world.rank]!;
      const out = emptyTensor(world.device, dtype, [source.tokens, hidden]);
      const { output, payloads } = ep.dispatch(source, stream);
      stream.copy(output.data, payloads.x.data, output.bytes);
      ep.combine(out, stream);
      outs[n]![world.rank] = await stream.copyOut(out.data, out.bytes);
    }
    await ep.dispose();
  });
  return outs;
}
