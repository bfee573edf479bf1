// 40 numbers, and a block of 64 threads: those that have none skip everything.
import { kernel, pointer } from 'heddle/lang';
import { run } from 'heddle/playground';

const shift = kernel({ name: 'shift', params: { numbers: pointer('u32') } }, (g, { numbers }) => {
  const i = g.threadIdx.x;
  if (i < 40) {
    const before = g.load(numbers.at(i));
    g.barrier();
    if (i < 39) g.store(numbers.at(i + 1), before);
  }
});

run({ ranks: 1 }, async (host) => {
  const numbers = host.filled('numbers', 160, 1);
  await host.launch(shift, { threads: 64 }, { numbers });
});
