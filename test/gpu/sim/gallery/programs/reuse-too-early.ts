// Three rounds, one place for the numbers. Each round waits for its flag; is the place free when the next one writes?
import { field, kernel, layout, peers, pointer } from 'heddle/lang';
import { run } from 'heddle/playground';

const Post = layout('window', { data: field('u32', 4), arrived: field('u32', 1), taken: field('u32', 1) });

const post = kernel(
  { name: 'post', params: { win: peers(Post), out: pointer('u32'), round: 'u32' } },
  (g, { win, out, round }) => {
    const mine = win.at(0);
    const there = win.at(1);
    const i = g.threadIdx.x;
    if (g.rank === 0) {
      g.store(there.data.at(i), round * 100 + i);
      g.barrier();
      if (i === 0) g.store(there.arrived, round, { order: 'release', scope: 'sys' });
    } else {
      if (i === 0) g.awaitEpoch(there.arrived, round, { order: 'acquire', scope: 'sys', limit: 1000 });
      g.barrier();
      g.store(out.at(i), g.load(there.data.at(i)));
      g.barrier();
      if (i === 0) g.store(mine.taken, round, { order: 'release', scope: 'sys' });
    }
  },
);

run({ ranks: 2 }, async (host) => {
  const win = await host.window(Post);
  const out = host.buffer('out', 16);
  for (let round = 1; round <= 3; round++) await host.launch(post, { threads: 4 }, { win, out, round });
});
