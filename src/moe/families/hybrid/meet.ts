/** Block b of a launch meets block b of the other ranks of its node. */
import { device } from '../../../lang/index.js';
import type { Operation } from '../common/waits.js';
import type { Hybrid } from './kit.js';

const flagsOf = { dispatch: 'dispatched', combine: 'combined' } as const;

/**
 * A block that meets this one sees what its threads did before their barrier, and so is all that its stream did
 * before the launch: every thread that tells a peer has awaited that itself. There is no barrier here: each chunk that a
 * dispatch forwards ends with one, and a combine's block comes with nothing of its own.
 *
 * A rank that has given up tells nobody: it may lack rows that it should have forwarded, or that its experts should have read. So the
 * others give up as well.
 */
export function meet({ at: { win }, u, phases }: Hybrid, operation: Operation) {
  return device(
    {
      params: { win, out: 'u32', node: 'u32', block: 'u32', epoch: 'u32', limit: 'u32' },
      using: { ...u, ...phases[operation], FLAGS: flagsOf[operation] },
    },
    (g, { win, out, node, block, epoch, limit }, u) => {
      const mine = win.at(g.rank);
      const peer = g.threadIdx.x;
      // `out` has a bit for each rank of the node that is left out.
      if (peer < u.LOCAL && ((out >>> peer) & 1) === 0) {
        const there = win.at(peer)[u.FLAGS].at(block, g.rank);
        if (limit > 0) g.store(there, epoch, { order: 'release', scope: 'sys' });
        const flag = mine[u.FLAGS].at(block, peer);
        const since = u.now();
        const came = g.awaitEpoch(flag, epoch, { order: 'acquire', scope: 'sys', limit });
        if (!came && limit > 0) u.failed({ failure: mine.failure, peer: node * u.LOCAL + peer, epoch });
        if (block === 0) u.noteWait({ mine, peer: node * u.LOCAL + peer, epoch, since });
      }
      g.barrier();
    },
  );
}
