/** Who was lost first, where ranks that hear of it leave one after the other. */
import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { RankLostError } from '../../src/base/errors.js';
import { ExpertParallel, row } from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';

test('a rank that misses one who left believes the circle, which knows because of whom', async () => {
  const [, told] = await World.local({ ranks: 3, nodes: 3, device: 'sim' }, async (world) => {
    const proxy = { error: null as Error | null, stop: async () => {} };
    world.startProxy = async () => proxy;
    const output = row('bf16', 8);
    const options = { experts: 3, topK: 1, maxTokens: 1, payloads: { x: output }, output };
    const ep = await ExpertParallel.create(world, options);
    const stream = world.device.createStream();
    await world.barrier('all are there');
    // Rank 1 finds that rank 2 is gone, which has accused rank 0; but the circle's word is on its way still.
    if (world.rank !== 1) return world.barrier('the end').catch(() => null);
    proxy.error = new RankLostError([2], 'write');
    const said = ep.synchronize(stream).catch((error: unknown) => error);
    // Long enough to have said it, had it not waited.
    for (let turn = 0; turn < 200; turn++) await setImmediate();
    world.circle.accuse([0], 'it was the first');
    return said;
  });
  expect(told).toBeInstanceOf(RankLostError);
  expect((told as RankLostError).ranks).toEqual([0]);
});
