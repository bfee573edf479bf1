/** What enqueuing costs the host: figures, not judgements. */
import { test } from 'node:test';
import { ExpertParallel, emptyTensor, row, tensorFrom } from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import { makeRoutes } from '../../src/verify/testing/index.js';
import { needs } from './machine.js';

test('what dispatch and combine cost the host', needs(1), async (context) => {
  const [tokens, hidden] = [8, 7168];
  await World.local({ ranks: 1, device: 'cuda' }, async (world) => {
    const { device } = world;
    const ep = await ExpertParallel.create(world, {
      experts: 8,
      topK: 2,
      maxTokens: tokens,
      payloads: { x: row('bf16', hidden) },
      output: row('bf16', hidden),
    });
    const stream = device.createStream();
    const { topkIds, topkWeights } = makeRoutes(ep.shape, 0, tokens, 1);
    const inputs = {
      topkIds: tensorFrom(device, stream, topkIds, 'i32', [tokens, 2]),
      topkWeights: tensorFrom(device, stream, topkWeights, 'f32', [tokens, 2]),
      payloads: {
        x: tensorFrom(device, stream, new Uint16Array(tokens * hidden), 'bf16', [tokens, hidden]),
      },
    };
    const out = emptyTensor(device, 'bf16', [tokens, hidden]);
    const enqueue = () => {
      ep.dispatch(inputs, stream);
      ep.combine(out, stream);
    };
    stream.beginCapture();
    enqueue();
    const graph = stream.endCapture();
    for (const [what, work] of [
      ['dispatch + combine', enqueue],
      ['a graph of them', () => graph.launch(stream)],
    ] as const) {
      const rounds: number[] = [];
      for (let round = 0; round < 30; round++) {
        await ep.synchronize(stream);
        // Few enough that the queue never fills, which would measure the GPU.
        const start = performance.now();
        for (let i = 0; i < 100; i++) work();
        rounds.push((performance.now() - start) * 10);
      }
      rounds.sort((a, b) => a - b);
      context.diagnostic(`${what}: median ${rounds[15]!.toFixed(2)} µs, best ${rounds[0]!.toFixed(2)} µs`);
    }
    await ep.synchronize(stream);
    graph.dispose();
    for (const tensor of [inputs.topkIds, inputs.topkWeights, inputs.payloads.x, out]) tensor.free();
    await ep.dispose();
  });
});
