// Each of four blocks leaves a number and counts itself in. The one that counts last adds them up.
import { kernel, pointer } from 'heddle/lang';
import { run } from 'heddle/playground';

const sum = kernel(
  { name: 'sum', params: { parts: pointer('u32'), count: pointer('u32'), out: pointer('u32') } },
  (g, { parts, count, out }) => {
    g.store(parts.at(g.blockIdx.x), g.blockIdx.x + 1);
    const before = g.atomicAdd(count, 1, { order: 'relaxed', scope: 'gpu' });
    if (before === g.gridDim.x - 1) {
      let total = g.u32(0);
      for (let i = 0; i < g.gridDim.x; i++) total += g.load(parts.at(i));
      g.store(out, total);
    }
  },
);

run({ ranks: 1 }, async (host) => {
  const parts = host.buffer('parts', 16);
  const count = host.filled('count', 4, 0);
  const out = host.buffer('out', 4);
  await host.launch(sum, { blocks: 4, threads: 1 }, { parts, count, out });
});
