// A program that comes to its end and disposes of nothing: a layer is there, and its proxy runs.

import { allocate } from '../../../../src/base/native/index.js';
import { NativeView } from '../../../../src/gpu/index.js';
import { ExpertParallel, row } from '../../../../src/moe/index.js';
import { type FabricOptions, ProcessCircle, proxyInThread, World } from '../../../../src/net/world/index.js';
import { words } from './relay.js';

const [mode, provider] = process.argv.slice(2) as [string, 'shm' | 'tcp;ofi_rxm'];
const fabric: FabricOptions = { provider, ...(provider !== 'shm' && { devices: ['lo'] }) };

async function round(world: World): Promise<void> {
  const ep = await ExpertParallel.create(world, {
    ...{ experts: 2 * world.ranks, topK: 1, maxTokens: 1, waitMs: 60_000 },
    payloads: { x: row('f32', 4) },
    output: row('f32', 4),
  });
  const stream = world.device.createStream();
  const inputs = { topkIds: Int32Array.of(0), topkWeights: Float32Array.of(1) };
  ep.dispatch({ ...inputs, payloads: { x: new Float32Array(4) } }, stream);
  await ep.synchronize(stream);
}

if (mode === 'a process a rank') await round(await World.join({ fabric }));
else if (mode === 'several ranks in a process') await World.join({ fabric }, round);
else {
  const circle = await ProcessCircle.join();
  const { buffer, ...memory } = allocate(words.bytes);
  const raw = new Uint8Array(buffer);
  const module = new URL('./relay.js', import.meta.url);
  await proxyInThread(fabric)(
    {
      ...{ module, name: 'relay', data: {} },
      memory: { ...memory, raw, host: new NativeView(raw), free: () => {} },
    },
    null,
  ).begin(circle);
}
console.log('it comes to its end');
