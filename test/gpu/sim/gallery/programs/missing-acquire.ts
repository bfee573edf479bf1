// Rank 0 writes 32 numbers into the window of rank 1 and raises a flag. Rank 1 waits for the flag and reads them.
import { field, kernel, layout, peers, pointer } from 'heddle/lang';
import { run } from 'heddle/playground';

const Post = layout('window', { data: field('u32', 32), arrived: field('u32', 1) });

const post = kernel(
  { name: 'post', params: { win: peers(Post), out: pointer('u32') } },
  (g, { win, out }) => {
    const there = win.at(1);
    const i = g.threadIdx.x;
    if (g.rank === 0) {
      g.store(there.data.at(i), i * i);
      g.barrier();
      if (i === 0) g.store(there.arrived, 1, { order: 'release', scope: 'sys' });
    } else {
      if (i === 0) g.awaitEpoch(there.arrived, 1, { order: 'relaxed', scope: 'sys', limit: 1000 });
      g.barrier();
      g.store(out.at(i), g.load(there.data.at(i)));
    }
  },
);

run({ ranks: 2 }, async (host) => {
  const win = await host.window(Post);
  const out = host.buffer('out', 128);
  await host.launch(post, { threads: 32 }, { win, out });
});
