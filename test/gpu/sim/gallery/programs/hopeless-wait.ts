// Two ranks tell each other that they are there, and wait for it.
import { field, kernel, layout, peers } from 'heddle/lang';
import { run } from 'heddle/playground';

const Meeting = layout('window', { there: field('u32', 2) });

const meet = kernel({ name: 'meet', params: { win: peers(Meeting) } }, (g, { win }) => {
  const other = 1 - g.rank;
  g.store(win.at(other).there.at(g.rank), 1, { order: 'release', scope: 'sys' });
  g.awaitEpoch(win.at(other).there.at(other), 1, { order: 'acquire', scope: 'sys', limit: 1000 });
});

run({ ranks: 2 }, async (host) => {
  const win = await host.window(Meeting);
  await host.launch(meet, { threads: 1 }, { win });
});
