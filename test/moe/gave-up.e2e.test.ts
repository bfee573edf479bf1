/** A rank that has given up in a round lacks rows, and nobody takes what its experts make of the others for the round's. */
import { expect, test } from 'vitest';
import { ExpertParallel, type ExpertParallelOptions, emptyTensor, row } from '../../src/moe/index.js';
import { roundsInside } from '../../src/moe/rounds/expert-parallel.js';
import { World } from '../../src/net/world/index.js';
import { tuned } from './maskable-rounds.js';

const cases: readonly [string, Partial<ExpertParallelOptions>, number?][] = [
  ['one-sided, pushed', tuned('push')],
  ['one-sided, pulled', tuned('pull')],
  ['one-sided, e4m3', { combineFormat: 'e4m3' }],
  ['one-sided, split', { split: true }],
  ['portable', { family: 'portable' }],
  ['hybrid on one node of two', { family: 'hybrid' }, 2],
];

test.each(cases)('%s', async (_, how, nodes = 1) => {
  const ends = await World.local({ ranks: 4, nodes, device: 'sim' }, async (world) => {
    const { device, rank } = world;
    const ep = await ExpertParallel.create(world, {
      ...{ experts: 4, topK: 1, maxTokens: 4, waitMs: 1000 },
      ...{ payloads: {}, output: row('f32', 16) },
      ...how,
    });
    const stream = device.createStream();
    const out = emptyTensor(device, 'f32', [4, 16]);
    // All tokens go to rank 1.
    const inputs = {
      topkIds: Int32Array.of(1, 1, 1, 1),
      topkWeights: Float32Array.of(1, 1, 1, 1),
      payloads: {},
    };
    const { output } = ep.dispatch(inputs, stream);
    stream.fill(output.data, output.bytes, 0);
    const { loaded } = roundsInside(ep)[0]!;
    // As a kernel that gave up leaves it: in dispatch, for rank 3, in the first round.
    if (rank === 1)
      stream.copyIn(
        loaded.tensor(loaded.plan.failure).data,
        new Uint8Array(Uint32Array.of(1, 3, 0, 0).buffer),
      );
    await stream.synchronize();
    await world.barrier('rank 1 has given up');
    ep.combine(out, stream);
    await stream.synchronize();
    return loaded.failure(stream);
  });
  for (const [rank, failure] of ends.entries()) {
    expect(failure).not.toBeNull();
    if (rank !== 1) expect(failure!.operation).toBe('combine');
  }
});
