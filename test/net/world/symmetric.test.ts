/** Who may not be part of NVSHMEM hears why, on every rank, before the library is called. */
import { expect, test } from 'vitest';
import type { CudaDevice } from '../../../src/gpu/cuda/index.js';
import { topologyOf } from '../../../src/gpu/topology.js';
import { ExpertParallel, row } from '../../../src/moe/index.js';
import { World } from '../../../src/net/world/index.js';
import { joinNvshmem } from '../../../src/net/world/windows.js';

const join = (alone: boolean, nodeOf: readonly number[]) => {
  const untouched = new Proxy({}, { get: () => expect.unreachable('the device was asked') }) as CudaDevice;
  return joinNvshmem({
    rank: 0,
    ranks: nodeOf.length,
    topology: topologyOf([...nodeOf], 0),
    device: untouched,
    alone,
    lost: new AbortController().signal,
    gather: async (bytes) => nodeOf.map(() => bytes),
  });
};

test('ranks that share a process', async () => {
  await expect(join(false, [0, 0])).rejects.toThrow(/one rank a process.*heddle run -n 2/);
});

test('ranks of several nodes', async () => {
  await expect(join(true, [0, 1])).rejects.toThrow(/inside one node, but this world has 2/);
});

test('one-sided kernels, which store; and transports that there are not', async () => {
  const layer = { experts: 2, topK: 1, maxTokens: 1, payloads: { x: row('u8', 16) }, output: row('f32', 4) };
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const create = (options: object) => ExpertParallel.create(world, { ...layer, ...options });
    await expect(create({ family: 'one-sided', transport: 'nvshmem' })).rejects.toThrow(
      "transport is \"nvshmem\"; it must be 'windows', unless family is 'portable'",
    );
    await expect(create({ transport: 'mail' })).rejects.toThrow(
      "transport is \"mail\"; it must be one of 'windows', 'nvshmem'",
    );
    expect((await create({ transport: 'nvshmem' })).family).toBe('portable');
  });
});
