/** Combine that adds its sums to what `out` holds: rows that come late, and where it cannot. test/suite/cases.ts has whole rounds of it. */
import { expect, test } from 'vitest';
import { callSite } from '../../src/gpu/index.js';
import { kernel, pointer } from '../../src/lang/index.js';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  readBits,
  row,
} from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import { raceFree } from './layers.js';

/** Writes 8 rows of 8 f32, all 0.5, and lets what follows begin at once. */
const halves = kernel({ name: 'halves', maxThreads: 64, params: { to: pointer('f32') } }, (g, { to }) => {
  g.awaitPrevious();
  g.releaseNext();
  g.store(to.at(g.threadIdx.x), 0.5);
});

test.each(['one-sided', 'portable', 'hybrid'])(
  'rows that a launch between the two halves of a combine makes are found: %s',
  async (family) => {
    const nodes = family === 'hybrid' ? 2 : 1;
    const sums = await raceFree({ ranks: 2, nodes, seed: 'halves' }, async (world) => {
      const { device, rank } = world;
      const ep = await ExpertParallel.create(world, {
        ...{ experts: 2, topK: 1, maxTokens: 8, family, split: true, adds: true },
        ...{ payloads: {}, output: row('f32', 8) },
      });
      const stream = device.createStream();
      const out = emptyTensor(device, 'f32', [8, 8]);
      const site = await callSite(device, halves, { grid: 1, block: 64, programmatic: true, rank });
      site.set.to(out.data);
      const inputs = {
        topkIds: new Int32Array(8).fill(1 - rank),
        topkWeights: new Float32Array(8).fill(1),
        payloads: {},
      };
      for (let n = 0; n < 3; n++) {
        const received = ep.dispatchRecv(ep.dispatchSend(inputs, stream), stream);
        stream.fill(received.output.data, received.output.bytes, 0);
        const sent = ep.combineSend(received, stream);
        site.launch(stream);
        ep.combineRecv(sent, out, stream);
      }
      const bits = await readBits(out, stream);
      await ep.dispose();
      return bits;
    });
    for (const rank of sums) expect(rank).toEqual(new Float32Array(64).fill(0.5));
  },
);

test.each<[string, Partial<ExpertParallelOptions>, string]>([
  ['rows of odd length', { output: row('bf16', 9) }, 'output.hidden is 9'],
  ['ranks that share tokens', { replicas: 2 }, 'adds is true; it must be false where ranks share tokens'],
])('is refused for %s', async (_, change, message) => {
  const options: ExpertParallelOptions = {
    ...{ experts: 4, topK: 2, maxTokens: 4, adds: true },
    ...{ payloads: { x: row('bf16', 8) }, output: row('bf16', 8) },
    ...change,
  };
  const create = World.local({ ranks: 2, device: 'sim' }, (world) => ExpertParallel.create(world, options));
  await expect(create).rejects.toThrow(message);
});
