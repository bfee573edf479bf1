/** Every rank tells every other that it has come to a round's dispatch or combine, and waits until all have. */

import { device, peers } from '../../../../src/lang/index.js';
import { type Operation, patienceOf, recordFailure } from '../../../../src/moe/families/common/waits.js';
import type { Layer } from '../../../../src/moe/layer/index.js';
import type { NaiveWindow } from './window.js';

const flagsOf = { dispatch: 'dispatched', combine: 'combined' } as const;

/** All threads of the only block; one for each rank at least. */
export const meet = (window: NaiveWindow, { ranks }: Layer, operation: Operation) =>
  device(
    {
      name: 'meet',
      params: { win: peers(window), epoch: 'u32', limit: 'u32' },
      using: { RANKS: ranks, FLAGS: flagsOf[operation], patienceOf, failed: recordFailure(operation) },
    },
    (g, { win, epoch, limit }, u) => {
      const mine = win.at(g.rank);
      const peer = g.threadIdx.x;
      const patience = u.patienceOf({ failure: mine.failure, limit });
      g.barrier(); // puts what all threads did before the release of each
      if (peer < u.RANKS) {
        g.store(win.at(peer)[u.FLAGS].at(g.rank), epoch, { order: 'release', scope: 'sys' });
        const flag = mine[u.FLAGS].at(peer);
        const came = g.awaitEpoch(flag, epoch, { order: 'acquire', scope: 'sys', limit: patience });
        if (!came && patience > 0) u.failed({ failure: mine.failure, peer, epoch });
      }
      g.barrier(); // passes on what they acquired
    },
  );
