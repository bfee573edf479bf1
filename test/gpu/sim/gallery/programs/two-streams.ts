// Two kernels on two streams of one GPU: the second reads what the first writes.
import { kernel, pointer } from 'heddle/lang';
import { run } from 'heddle/playground';

const copy = kernel(
  { name: 'copy', params: { from: pointer('u32'), to: pointer('u32') } },
  (g, { from, to }) => {
    g.store(to.at(g.threadIdx.x), g.load(from.at(g.threadIdx.x)));
  },
);

run({ ranks: 1 }, async (host) => {
  const input = host.filled('input', 128, 1);
  const between = host.filled('between', 128, 0);
  const out = host.buffer('out', 128);
  const second = host.newStream();
  const ready = host.newEvent();
  host.stream.record(ready);
  await host.launch(copy, {}, { from: input, to: between });
  second.wait(ready);
  await host.launch(copy, { stream: second }, { from: between, to: out });
});
