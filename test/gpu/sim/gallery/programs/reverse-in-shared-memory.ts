// A block turns 64 numbers round, by way of shared memory.
import { kernel, pointer } from 'heddle/lang';
import { run } from 'heddle/playground';

const reverse = kernel(
  { name: 'reverse', params: { input: pointer('u32'), out: pointer('u32') } },
  (g, { input, out }) => {
    const tile = g.shared('u32', 64);
    const i = g.threadIdx.x;
    g.store(tile.at(i), g.load(input.at(i)));
    g.store(out.at(i), g.load(tile.at(63 - i)));
  },
);

run({ ranks: 1 }, async (host) => {
  const input = host.filled('input', 256, 1);
  const out = host.buffer('out', 256);
  await host.launch(reverse, { threads: 64 }, { input, out });
});
