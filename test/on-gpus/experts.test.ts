/** Plan, expand and reduce on a GPU beside the reference: it is one rank's work, so one GPU stands for any of them. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ExpertsPlanOptions } from '../../src/moe/index.js';
import { type Layer, reference } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { makeSources, type RoundsShape, shapeOfRounds } from '../../src/verify/testing/index.js';
import { comparePlan, placeReceived, runPlan } from '../../src/verify/trials/index.js';
import { needs } from './machine.js';

const plain: RoundsShape = {
  ...{ ranks: 4, experts: 256, topK: 8, maxTokens: 128, hidden: 512 },
  ...{ dtype: 'bf16', extra: [224] },
};

const cases: Readonly<
  Record<string, { readonly shape?: Partial<RoundsShape>; readonly options?: ExpertsPlanOptions }>
> = {
  'contiguous, aligned': { options: { alignment: 128 } },
  masked: { options: { form: 'masked', alignment: 16, capacity: 32 } },
  'no room for all': { options: { capacity: 1000 } },
  'one token': { shape: { maxTokens: 1, experts: 4, topK: 2 } },
  'many blocks and steps': { shape: { maxTokens: 2048, hidden: 8, extra: [] } },
  '1024 experts of one rank': { shape: { ranks: 1, experts: 1024, topK: 32 } },
  'odd rows of f16, top 9': { shape: { hidden: 77, dtype: 'f16', topK: 9, maxTokens: 33 } },
};

describe('rows by expert', needs(1, 120_000), () => {
  for (const [name, { shape, options = {} }] of Object.entries(cases)) {
    test(name, async () => {
      const layer: Layer = { ...shapeOfRounds({ ...plain, ...shape }), weights: true, counts: false };
      const rank = layer.ranks - 1;
      const received = reference.dispatch(layer, makeSources(layer, layer.maxTokens, 3), rank);
      await World.local({ ranks: 1, device: 'cuda' }, async ({ device }) => {
        const stream = device.createStream();
        const placed = placeReceived(device, stream, layer, received);
        await stream.synchronize();
        const result = await runPlan({ world: { device, rank }, shape: layer, received: placed }, options, 3);
        const { different, first } = comparePlan(layer, rank, received, options, result);
        assert.equal(different, 0, first);
      });
    });
  }
});
