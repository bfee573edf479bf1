/** Messages between nodes in memory of GPUs: one range of addresses whose front is the host's. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CudaDevice, GpuFlush } from '../../src/gpu/cuda/index.js';
import { World } from '../../src/net/world/index.js';
import { roundTripCases } from '../suite/round-trip.js';
import { copyWires, wiresRefused } from './copied-wires.js';
import { needs, providersHere } from './machine.js';

test('the front of a wire is the host’s, and the rest the GPU’s', {
  ...needs(1),
  skip: wiresRefused ?? false,
}, async (context) => {
  const device = CudaDevice.open(0);
  const shape = { bytes: 5 << 20, front: 3 << 10, side: 'gpu' } as const;
  const fills = [
    { offset: 16, bytes: 16, value: 1 },
    { offset: shape.front + 32, bytes: 16, value: 2 },
  ];
  const wire = device.allocateWire(shape, 'a wire', fills);
  const stream = device.createStream();
  wire.host.store(0, 7);
  // Each part by itself: CUDA takes a range to lie where its first byte does.
  const seen = Buffer.concat([
    await stream.copyOut(wire.address, shape.front),
    await stream.copyOut(wire.address + shape.front, shape.bytes - shape.front),
  ]);
  const wanted = new Uint8Array(shape.bytes);
  wanted[0] = 7;
  for (const { offset, bytes, value } of fills) wanted.fill(value, offset, offset + bytes);
  assert.ok(seen.equals(wanted));
  stream.fill(wire.address + 64, 4, 9);
  await stream.synchronize();
  assert.equal(wire.host.load(64), 0x09090909);
  assert.throws(() => wire.host.load(shape.front), /offset/);
  assert.equal(wire.nics.kind, 'gpu');
  if (wire.nics.kind === 'gpu') {
    const { flush, dmabuf } = wire.nics;
    context.diagnostic(
      `${dmabuf ? 'a' : 'no'} dmabuf; ${flush ? 'must be flushed' : 'orders what NICs write'}`,
    );
    assert.equal(wire.nics.address, wire.address + shape.front);
    const flusher = new GpuFlush(0);
    flusher.flush();
    flusher.close();
  }
  wire.free();
  await device.dispose();
});

describe('hybrid, 2 nodes, messages in memory of the GPU', {
  ...needs(2, 60_000),
  ...(wiresRefused && { skip: wiresRefused }),
}, () => {
  for (const { name, run } of roundTripCases(2, { family: 'hybrid', nodes: 2, replays: 3 })) {
    // A group lies inside a node.
    if (name.startsWith('groups')) continue;
    test(name, { timeout: 20_000 }, async () => {
      const ends: Parameters<typeof copyWires>[1] = [];
      await World.local({ ranks: 2, nodes: 2, device: 'cuda', timeoutMs: 15_000 }, async (world) => {
        copyWires(world, ends);
        await run(world);
      });
    });
  }
});

describe('a GPU whose provider moves its memory by copies', needs(1), () => {
  for (const { provider } of providersHere().filter(({ provider }) => /^(shm|tcp)/.test(provider))) {
    const found = (wires: 'auto' | 'gpu') =>
      World.local({ ranks: 1, device: 'cuda', fabric: { provider, wires } }, (world) => world.wires());
    test(`has its messages in host memory over ${provider}`, async () => {
      const [wires] = await found('auto');
      assert.equal(wires!.side, 'host');
      assert.match(wires!.why, /by copies of CUDA, which may wait for the kernel/);
    });
    test(`and is refused where they must lie in its own, over ${provider}`, async () => {
      await assert.rejects(found('gpu'), /must lie in the GPU's memory .*by copies of CUDA/);
    });
  }
});
