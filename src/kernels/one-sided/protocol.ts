/**
 * The two halves of every rendezvous of this family: `arrive` tells block b of every rank that my block b has come
 * to `epoch`, `awaitPeers` waits until block b of every rank has told me the same.
 *
 * Blocks with the same index form a group of their own, so nothing is counted inside a GPU: no tickets, no last
 * block, no reset, and block 0 does not wait for block 131. A launch ends when all its blocks have ended, which is
 * when every rank has sent everything.
 */
import { device, peers } from '../../lang/index.js';
import type { OneSidedShape, OneSidedWindow } from './window.js';

export function protocol(
  window: OneSidedWindow,
  shape: OneSidedShape,
  phase: 'dispatched' | 'combined',
  operation: number,
) {
  const using = { RANKS: shape.ranks, DISPATCH: phase === 'dispatched' };

  /** Threads 0 … RANKS-1 each tell one peer. */
  const arrive = device(
    { name: `arrive_${phase}`, params: { win: peers(window), epoch: 'u32' }, using },
    (g, { win, epoch }, { RANKS, DISPATCH }) => {
      // All stores of this block happen before this barrier ends, and the release below is cumulative: what the
      // block's threads wrote to any rank is visible to whoever acquires this flag. (A combine that begins with this
      // has written nothing yet: what it vouches for was there before its launch.)
      if (DISPATCH) g.barrier();
      const peer = g.threadIdx.x;
      if (peer < RANKS) {
        const there = win.at(peer);
        const flags = DISPATCH ? there.dispatched : there.combined;
        g.store(flags.at(g.blockIdx.x * RANKS + g.rank), epoch, { order: 'release', scope: 'sys' });
      }
    },
  );

  /**
   * How long a launch may wait: not at all behind one that gave up. So all that is enqueued ends within the time of
   * one wait, however many waits it holds, and `failure` stays what went wrong first.
   */
  const patience = device(
    { name: 'patience', params: { win: peers(window), limit: 'u32' }, returns: 'u32', using: {} },
    (g, { win, limit }) => {
      const failure = g.load(win.at(g.rank).failure.at(0), { order: 'relaxed', scope: 'gpu' });
      return failure === 0 ? limit : g.u32(0);
    },
  );

  /**
   * Records whom a wait gave up on, for this rank alone. Several blocks may fail at once: each word is whole, and any
   * of them is worth reporting.
   */
  const failed = device(
    {
      name: `failed_${phase}`,
      params: { win: peers(window), peer: 'u32', epoch: 'u32' },
      using: { OPERATION: operation },
    },
    (g, { win, peer, epoch }, { OPERATION }) => {
      const { failure } = win.at(g.rank);
      g.store(failure.at(0), OPERATION, { order: 'relaxed', scope: 'gpu' });
      g.store(failure.at(1), peer, { order: 'relaxed', scope: 'gpu' });
      g.store(failure.at(2), epoch, { order: 'relaxed', scope: 'gpu' });
      g.store(failure.at(3), g.blockIdx.x, { order: 'relaxed', scope: 'gpu' });
    },
  );

  /** Threads 0 … RANKS-1 each wait for one peer; the barrier passes what they acquired on to the block. */
  const awaitPeers = device(
    {
      name: `await_${phase}`,
      params: { win: peers(window), epoch: 'u32', limit: 'u32' },
      using: { ...using, failed },
    },
    (g, { win, epoch, limit }, { RANKS, DISPATCH, failed }) => {
      const peer = g.threadIdx.x;
      if (peer < RANKS) {
        const mine = win.at(g.rank);
        const flags = DISPATCH ? mine.dispatched : mine.combined;
        const came = g.awaitEpoch(flags.at(g.blockIdx.x * RANKS + peer), epoch, {
          order: 'acquire',
          scope: 'sys',
          limit,
        });
        if (!came && limit > 0) failed({ win, peer, epoch });
      }
      g.barrier();
    },
  );

  /**
   * Combine, before `awaitPrevious`: the number of its round. The last combine left the count, and this round's dispatch,
   * behind which this launch begins, awaited that one. Nothing else touches the word, so it may also be raised at once.
   */
  const countCombine = device(
    { name: 'count_combine', params: { win: peers(window) }, returns: 'u32', using: {} },
    (g, { win }) => {
      const count = win.at(g.rank).combines.at(g.blockIdx.x);
      // Not by way of L1, where something older might linger.
      const epoch = g.load(count, { order: 'relaxed', scope: 'gpu' }) + 1;
      g.barrier(); // all of the block have read it
      if (g.threadIdx.x === 0) g.store(count, epoch);
      return epoch;
    },
  );

  /** A pushing combine, at its start: the experts of this rank have read what dispatch wrote here. */
  const releaseSlots = device(
    { name: 'release_slots', params: { win: peers(window), epoch: 'u32' }, using: { RANKS: shape.ranks } },
    (g, { win, epoch }, { RANKS }) => {
      const peer = g.threadIdx.x;
      // Those reads are behind this launch on the stream, so any one thread may vouch for all of them.
      if (peer < RANKS) g.store(win.at(peer).released.at(g.rank), epoch, { order: 'release', scope: 'sys' });
    },
  );

  /**
   * Dispatch, before its first store: every rank has released what the last round put into its slots, or time is over.
   * Each warp looks for itself, so that none of them waits for the loads of another.
   */
  const awaitSlots = device(
    {
      name: 'await_slots',
      params: { win: peers(window), epoch: 'u32', limit: 'u32' },
      returns: 'bool',
      using: { RANKS: shape.ranks, failed },
    },
    (g, { win, epoch, limit }, { RANKS, failed }) => {
      let free = true;
      for (let peer = g.laneId; peer < RANKS; peer += 32) {
        const flag = win.at(g.rank).released.at(peer);
        if (!g.awaitEpoch(flag, epoch, { order: 'acquire', scope: 'sys', limit })) {
          if (limit > 0) failed({ win, peer, epoch });
          free = false;
        }
      }
      g.warp.barrier(); // passes on what the lanes acquired
      return free;
    },
  );

  return { arrive, awaitPeers, patience, failed, countCombine, releaseSlots, awaitSlots };
}

/** The rank that owns an expert, or RANKS for 'none': ids out of range own nothing and never become an address. */
export function expertOwner(shape: { experts: number; ranks: number }) {
  const base = Math.floor(shape.experts / shape.ranks);
  const extra = shape.experts % shape.ranks;
  return device(
    {
      name: 'owner_of',
      params: { expert: 'i32' },
      returns: 'u32',
      // The first EXTRA ranks own MORE = BASE + 1 experts each, up to CUT; the others BASE. Where that is 0 nobody
      // divides by it, but it must not be a constant 0 in a division.
      using: {
        RANKS: shape.ranks,
        EXPERTS: shape.experts,
        BASE: Math.max(base, 1),
        MORE: base + 1,
        EXTRA: extra,
        CUT: extra * (base + 1),
      },
    },
    (g, { expert }, { RANKS, EXPERTS, BASE, MORE, EXTRA, CUT }) => {
      const id = g.u32(expert); // a negative id becomes a huge one
      if (id >= EXPERTS) return g.u32(RANKS);
      if (id < CUT) return id / MORE;
      return EXTRA + (id - CUT) / BASE;
    },
  );
}
