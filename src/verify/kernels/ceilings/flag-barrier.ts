/**
 * The flag barrier: what it costs that all ranks meet, and nothing else. One block a rank; each round every rank
 * tells every other that it has come, and waits until all have.
 *
 * With a pause it also aligns the ranks for a measurement: all meet, everybody waits while the hosts enqueue what is
 * to be measured, all meet again.
 */
import { field, kernel, layout, peers } from '../../../lang/index.js';

/** `failed` is 1 + the rank that did not come, 0 while all do. */
export function flagBarrierWindow(ranks: number) {
  return layout('flag barrier', {
    /** Rounds that this rank has come to: written and read by its own launches only. */
    rounds: field('u32', 1),
    failed: field('u32', 1),
    /** [source]: the round that it has come to. It only grows, so a peer that is ahead does no harm. */
    arrived: field('u32', ranks),
  });
}

export type FlagBarrierWindow = ReturnType<typeof flagBarrierWindow>;

/** Launched with one block of whole warps, a thread for each rank at least. */
export function flagBarrierKernel(ranks: number, window: FlagBarrierWindow) {
  return kernel(
    {
      name: 'flag_barrier',
      params: {
        win: peers(window),
        rounds: 'u32',
        /** Microseconds between the first round and the others. */
        pause: 'u32',
        /** Microseconds to wait for a peer. */
        limit: 'u32',
      },
      using: { RANKS: ranks },
    },
    (g, { win, rounds, pause, limit }, { RANKS }) => {
      const mine = win.at(g.rank);
      const before = g.load(mine.rounds);
      const peer = g.threadIdx.x;
      for (let round = g.u32(1); round <= rounds; round += 1) {
        // All threads have met their peers of the last round, and the release covers what they did.
        g.barrier();
        if (peer === 0) g.store(mine.rounds, before + round);
        if (peer < RANKS) {
          g.store(win.at(peer).arrived.at(g.rank), before + round, { order: 'release', scope: 'sys' });
          const came = g.awaitEpoch(mine.arrived.at(peer), before + round, {
            order: 'acquire',
            scope: 'sys',
            limit,
          });
          if (!came) g.store(mine.failed, peer + 1, { order: 'relaxed', scope: 'cta' });
        }
        if (round === 1 && pause > 0) {
          const start = g.clock();
          while (g.clock() - start < g.u64(pause) * 1000n) g.sleep(500);
        }
      }
    },
  );
}
