/** An invariant layer on GPUs: a token's bits are the same in every batch, on one rank and on several. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type MoeModel, profiles } from '../../src/moe/layer/index.js';
import { type Batch, batchesOf, bitsOfTokens } from '../moe/batches.js';
import { makeLayer } from '../moe/whole-layer.js';
import { gpus, needs } from './machine.js';

const models: Readonly<Record<string, MoeModel>> = {
  deep: { ...profiles.deepseek_v3, hidden: 1024, experts: 32, inner: 512, sharedInner: 512 },
  gptOss: { ...profiles.gpt_oss_120b, hidden: 384, experts: 16, inner: 192 },
};
const all = 40;
const every = Array.from({ length: all }, (_, t) => t);

for (const [name, model] of Object.entries(models)) {
  for (const dtype of ['bf16', 'fp8', 'mxfp4'] as const) {
    // gpt-oss's sizes are no multiples of 128.
    if (dtype === 'fp8' && model.inner % 128 !== 0) continue;
    describe(`${name}, ${dtype}`, needs(1, 300_000), () => {
      const inputs = makeLayer(model, [all], 3, dtype);
      const how = { rows: dtype === 'fp8' ? dtype : 'bf16', invariant: true } as const;
      let together: ReturnType<typeof bitsOfTokens> | undefined;
      const batches: Record<string, Batch> = {
        ...batchesOf(model, all, gpus >= 4 ? 4 : gpus),
        // Other rows beside them, so many that experts take the kernels for many.
        'among many': { tokens: [Array.from({ length: 1200 }, (_, i) => i % all)] },
        'on few multiprocessors': { tokens: [every], sms: 16 },
      };
      for (const [way, batch] of Object.entries(batches)) {
        test(way, { timeout: 60_000 }, async () => {
          together ??= bitsOfTokens(inputs, { tokens: [every], ...how }, 'cuda');
          const expected = await together;
          for (const [token, bits] of await bitsOfTokens(inputs, { ...batch, ...how }, 'cuda'))
            assert.deepEqual(bits, expected.get(token), `token ${token}`);
        });
      }
    });
  }
}
