/** What enqueuing costs the host: figures, not judgements. */
import { test } from 'node:test';
import { World } from '../../src/net/world/index.js';
import { needs } from './machine.js';
import { placedRounds } from './rounds.js';

test('what dispatch and combine cost the host', needs(1), async (context) => {
  const [tokens, hidden] = [8, 7168];
  await World.local({ ranks: 1, device: 'cuda' }, async (world) => {
    const layer = { experts: 8, topK: 2, maxTokens: tokens };
    const { ep, stream, inputs, out } = await placedRounds(world, layer, new Uint16Array(tokens * hidden));
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
