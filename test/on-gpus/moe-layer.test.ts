/** A whole layer on GPUs: what plain code makes of it, the same bits in every way, eagerly and as a graph. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ForwardOptions, MoeLayerOptions } from '../../src/moe/index.js';
import { type MoeModel, profiles } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { runLayer } from '../moe/run-layer.js';
import { compareLayer, makeLayer, plainLayer } from '../moe/whole-layer.js';
import { needs } from './machine.js';

/** DeepSeek-V3's, Mixtral's and gpt-oss's, narrower and with fewer experts. */
const deep: MoeModel = {
  ...profiles.deepseek_v3,
  ...{ hidden: 512, experts: 32, inner: 128, sharedInner: 256 },
};
const plain: MoeModel = { ...profiles.mixtral, hidden: 256, inner: 128 };
const gptOss: MoeModel = { ...profiles.gpt_oss_120b, hidden: 384, experts: 16, inner: 192 };

interface Way extends Partial<MoeLayerOptions>, ForwardOptions {
  /** Default: one. */
  readonly nodes?: number;
}
const ways: Readonly<Record<string, Way>> = {
  'in a row': { overlap: false },
  split: {},
  'two chunks': { rounds: 2, chunks: 2 },
  portable: { family: 'portable' },
  cuBLAS: { gemm: 'cublas' },
  'rows as fp8': { rows: 'fp8' },
  'portable, rows as fp8': { family: 'portable', rows: 'fp8' },
  'hybrid, two nodes': { family: 'hybrid', nodes: 2 },
  'hybrid, two nodes, rows as fp8': { family: 'hybrid', nodes: 2, rows: 'fp8' },
};

for (const [name, model] of Object.entries({ deep, plain, gptOss })) {
  describe(`a layer on GPUs: ${name}`, needs(2, 120_000), () => {
    const inputs = makeLayer(model, [13, 16], 1);
    for (const [way, { rows = 'bf16', nodes = 1, ...how }] of Object.entries(ways)) {
      // cuBLAS multiplies for experts without biases only.
      if (model.biases && how.gemm === 'cublas') continue;
      test(way, { timeout: 30_000 }, async () => {
        const expected = plainLayer(inputs, rows);
        for (const graph of [false, true]) {
          const runs = await World.local({ ranks: 2, nodes, device: 'cuda' }, (world) =>
            runLayer(world, inputs, { maxTokens: 16, rows, ...how }, { times: 5, graph }),
          );
          const outs = runs.map(({ out }) => out);
          const { different, first } = compareLayer(model.hidden, outs, expected);
          assert.equal(different, 0, `a graph: ${graph}: ${first}`);
        }
      });
    }
  });
}
