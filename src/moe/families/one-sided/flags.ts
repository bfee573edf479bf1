/**
 * The two halves of every rendezvous of this family: `arrive` tells block b of every rank that my block b has come
 * to `epoch`, `awaitPeers` waits until block b of every rank has told me the same.
 *
 * Blocks with the same index form a group of their own, so nothing is counted inside a GPU: no tickets, no last
 * block, no reset, and block 0 does not wait for block 131. A launch ends when all its blocks have ended, which is
 * when every rank has sent everything.
 */
import { device, pointer } from '../../../lang/index.js';
import { numbers } from '../common/params.js';
import type { Operation } from '../common/waits.js';
import type { OneSided } from './kit.js';

/** A phase's flags of its window. */
const flagsOf = { dispatch: 'dispatched', combine: 'combined' } as const;

/** Waits for a word of a peer; false in vain. It notes the time that it took if `counted`: one thread of a launch does for each peer. */
const waitFor = ({ at: { mine }, phases }: OneSided, operation: Operation) =>
  device(
    {
      params: { mine, flag: pointer('u32'), ...numbers('peer', 'epoch', 'limit'), counted: 'bool' },
      returns: 'bool',
      using: phases[operation],
    },
    (g, { mine, flag, peer, epoch, limit, counted }, { failed, now, noteWait }) => {
      const since = now();
      const came = g.awaitEpoch(flag, epoch, { order: 'acquire', scope: 'sys', limit });
      if (!came && limit > 0) failed({ failure: mine.failure, peer, epoch });
      if (counted) noteWait({ mine, peer, epoch, since });
      return came;
    },
  );

export function flags(o: OneSided, operation: Operation) {
  const { win, mine } = o.at;
  const using = { ...o.u, ...o.phases[operation], FLAGS: flagsOf[operation] };

  /** Threads 0 … RANKS-1 each tell one peer. The block's stores must have happened before a barrier ahead of this. */
  const arrive = device(
    { params: { win, mask: 'v16', epoch: 'u32' }, using },
    (g, { win, mask, epoch }, u) => {
      const peer = g.threadIdx.x;
      if (peer < u.RANKS) {
        const out = u.isOut({ mask, rank: peer });
        const flag = win.at(peer)[u.FLAGS].at(g.blockIdx.x, g.rank);
        if (!out) g.store(flag, epoch, { order: 'release', scope: 'sys' });
      }
    },
  );

  /** Waits for one block of one peer, unless that is left out; false in vain. Block 0 stands for all of them where waits are counted. */
  const awaitPeer = device(
    {
      params: { mine, mask: 'v16', ...numbers('block', 'peer', 'epoch', 'limit') },
      returns: 'bool',
      using: { ...using, waitFor: waitFor(o, operation) },
    },
    (_, { mine, mask, block, peer, epoch, limit }, u) => {
      if (u.isOut({ mask, rank: peer })) return true;
      const flag = mine[u.FLAGS].at(block, peer);
      return u.waitFor({ mine, flag, peer, epoch, limit, counted: block === 0 });
    },
  );

  /** Threads 0 … RANKS-1 each wait for one peer; the barrier passes what they acquired on to the block. */
  const awaitPeers = device(
    { params: { win, mask: 'v16', epoch: 'u32', limit: 'u32' }, using: { ...using, awaitPeer } },
    (g, { win, mask, epoch, limit }, u) => {
      const peer = g.threadIdx.x;
      if (peer < u.RANKS)
        u.awaitPeer({ mine: win.at(g.rank), mask, block: g.blockIdx.x, peer, epoch, limit });
      g.barrier();
    },
  );

  return { arrive, awaitPeer, awaitPeers };
}

/** How a pushing combine lets the next dispatch write to slots again; only it needs that (window.ts). */
export function release(o: OneSided) {
  const { win, mine } = o.at;
  const using = { ...o.u, ...o.phases.combine };
  /** A combine, at its start: the experts of this rank have read what dispatch wrote here. */
  const releaseSlots = device(
    { params: { win, mask: 'v16', epoch: 'u32' }, using },
    (g, { win, mask, epoch }, u) => {
      const peer = g.threadIdx.x;
      // This launch is behind those reads on the stream, so any one thread may vouch for all of them.
      if (peer < u.RANKS) {
        const out = u.isOut({ mask, rank: peer });
        if (!out) g.store(win.at(peer).released.at(g.rank), epoch, { order: 'release', scope: 'sys' });
      }
    },
  );

  /**
   * Until every rank has, or time is over. Each warp looks for itself: with one alone rounds were slower (docs/results). The first notes
   * how long it waits for each.
   */
  const awaitSlots = device(
    {
      params: { mine, mask: 'v16', ...numbers('epoch', 'limit') },
      using: { ...using, waitFor: waitFor(o, 'combine') },
    },
    (g, { mine, mask, epoch, limit }, u) => {
      for (let peer = g.laneId; peer < u.RANKS; peer += 32) {
        const flag = mine.released.at(peer);
        const out = u.isOut({ mask, rank: peer });
        if (!out) u.waitFor({ mine, flag, peer, epoch, limit, counted: g.warpId === 0 });
      }
    },
  );

  return { releaseSlots, awaitSlots };
}

/**
 * Counts a round, in a word that one block of one kernel owns and nothing else touches. May be called before `awaitPrevious`:
 * the launch of the last round, which left the count, has ended, since a phase that lies between has awaited it. So the word
 * may also be raised at once. It is not read by way of L1, where something older might linger.
 */
export const countRound = device({ params: { count: pointer('u32') }, returns: 'u32' }, (g, { count }) => {
  const epoch = g.load(count, { order: 'relaxed', scope: 'gpu' }) + 1;
  g.barrier(); // all of the block have read it
  if (g.threadIdx.x === 0) g.store(count, epoch);
  return epoch;
});
