/** Writes from one GPU's memory into another's through the fabric, by whichever way the provider and the driver have. */
import assert from 'node:assert/strict';
import { fstatSync } from 'node:fs';
import { test } from 'node:test';
import { CudaDevice } from '../../src/gpu/cuda/index.js';
import { TransferEngine } from '../../src/net/fabric/index.js';
import { needs, providersHere } from './machine.js';

const bytes = 1 << 20;

const providers = providersHere().filter(({ provider }) => provider !== 'udp;ofi_rxd');

for (const ways of ['staging', 'whatever there is'] as const) {
  for (const { provider } of providers) {
    test(`from GPU to GPU over ${provider}, by ${ways}`, needs(1, 30_000), async (context) => {
      const options = {
        ...({ provider, thread: 'caller', timeoutMs: 5000, gpuMemory: ways !== 'staging' } as const),
        ...(provider === 'shm' ? {} : { devices: ['lo'] }),
      };
      const [a, b] = [await TransferEngine.open(options), await TransferEngine.open(options)];
      const device = CudaDevice.open(0);
      const stream = device.createStream();
      const [from, to] = [device.allocate(bytes, 'from'), device.allocate(bytes, 'to')];
      const wanted = Uint8Array.from({ length: bytes }, (_, i) => (i * 7 + (i >> 8)) & 255);
      stream.copyIn(from.address, wanted);
      stream.fill(to.address, bytes, 0);
      await stream.synchronize();

      const register = (engine: TransferEngine, { address }: { address: number }) => {
        const dmabuf = device.exportDmabuf(address, bytes);
        const region = engine.registerGpu({ address, bytes, ordinal: 0, ...(dmabuf && { dmabuf }) });
        dmabuf?.close();
        return region;
      };
      const [source, target] = [register(a, from), register(b, to)];
      context.diagnostic(`${source.path} → ${target.path}`);
      if (ways === 'staging') assert.deepEqual([source.path, target.path], ['staging', 'staging']);

      if (source.path === 'staging')
        new Uint8Array(source.buffer).set(await stream.copyOut(from.address, bytes));
      const remote = a.remote(a.addPeer(b.address, 'b'), target.descriptor);
      b.addPeer(a.address, 'a');
      const counter = a.counter();
      a.write({ source, sourceOffset: 0, target: remote, targetOffset: 0, bytes, immediate: 1, counter });
      const end = performance.now() + 10_000;
      while (!counter.reached(1) || b.immediate(1).landed === 0) {
        for (const engine of [a, b]) engine.poll();
        assert.ok(performance.now() < end, 'the write did not land within 10 s');
      }
      if (target.path === 'staging') stream.copyIn(to.address, new Uint8Array(target.buffer));
      assert.ok(Buffer.from(await stream.copyOut(to.address, bytes)).equals(wanted));

      await a.close();
      await b.close();
      await device.dispose();
    });
  }
}

test('a dmabuf of GPU memory is a file of this process until it is closed', needs(1), async (context) => {
  const device = CudaDevice.open(0);
  const memory = device.allocate(3 * 4096, 'exported');
  const dmabuf = device.exportDmabuf(memory.address + 512, 4096);
  context.diagnostic(dmabuf === null ? 'the driver makes none here' : `at offset ${dmabuf.offset}`);
  if (dmabuf !== null) {
    assert.equal(dmabuf.offset, (memory.address + 512) % 4096);
    fstatSync(dmabuf.fd);
    dmabuf.close();
    assert.throws(() => fstatSync(dmabuf.fd), /EBADF/);
  }
  await device.dispose();
});
