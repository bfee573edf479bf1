/**
 * How many tokens each rank brought, where rounds may bring far fewer than there are slots: then nobody writes, or looks at, slots that
 * no round has reached lately.
 */
import { device } from '../../../lang/index.js';
import type { OneSided } from './kit.js';
import { passesOver } from './window.js';

export function brought({ shape, at, u, phases }: OneSided) {
  const tells = passesOver(shape);
  const using = { ...u, ...phases.dispatch, TELLS: tells };

  /**
   * The turns whose routes a dispatch tells: those of its tokens, and those that the last two rounds reached. Slots behind them say already that
   * they are empty: `experts` since the last round or before, this round's half of `present` since the one before that.
   */
  const turnsToTell = device(
    { params: { mine: at.mine, rank: 'u32', tokens: 'u32', epoch: 'u32' }, returns: 'u32', using },
    (g, { mine, rank, tokens, epoch }, u) => {
      let turns = g.u32(u.TURNS);
      if (u.TELLS) {
        const last = g.load(mine.brought.at((epoch + 3) % 4, rank));
        const before = g.load(mine.brought.at((epoch + 2) % 4, rank));
        const most = g.min(g.max(tokens, g.max(last, before)), g.u32(u.MAX_TOKENS));
        turns = (most + u.REPLICAS - 1) / u.REPLICAS;
      }
      return turns;
    },
  );

  /** Notes the most tokens that came, for the experts; one block, which has awaited block 0 of every source. */
  const noteReached = device(
    { params: { mine: at.mine, mask: 'v16', epoch: 'u32' }, using },
    (g, { mine, mask, epoch }, u) => {
      if (u.TELLS) {
        if (g.warpId === 0) {
          let most = g.u32(0);
          for (let rank = g.laneId; rank < u.RANKS; rank += 32) {
            const out = u.isOut({ mask, rank });
            // A receive is not behind its `awaitPrevious`, so L1 might answer with what a round brought four rounds ago.
            const own = mine.brought.at(epoch % 4, rank);
            if (!out) most = g.max(most, g.load(own, { order: 'relaxed', scope: 'gpu' }));
          }
          for (const step of g.unroll(5)) most = g.max(most, g.warp.shuffleXor(most, 1 << step));
          if (g.laneId === 0) g.store(mine.reached.at(0), most);
        }
      }
    },
  );

  return { TELLS: tells, turnsToTell, noteReached };
}

/** The most tokens that this lane's ranks brought to the round: those `lane`, `lane + 32` … that are not left out. 0 where nobody asks. */
export const broughtBy = (o: OneSided, sends: boolean) =>
  device(
    {
      params: { mine: o.at.mine, mask: 'v16', epoch: 'u32' },
      returns: 'u32',
      using: { ...o.u, ...o.phases.combine, RANKS: sends && passesOver(o.shape) ? o.u.RANKS : 0 },
    },
    (g, { mine, mask, epoch }, u) => {
      let most = g.u32(0);
      let rank = g.laneId;
      if (rank < u.RANKS) {
        // Nothing here uses this value where there are up to 32 ranks, so no thread waits for it yet.
        if (!u.isOut({ mask, rank })) most = g.load(mine.brought.at(epoch % 4, rank));
      }
      for (rank += 32; rank < u.RANKS; rank += 32) {
        const out = u.isOut({ mask, rank });
        if (!out) most = g.max(most, g.load(mine.brought.at(epoch % 4, rank)));
      }
      return most;
    },
  );

/** The end of a team's pieces: `next` where no rank brought as many tokens, else as it was. */
export const endOf = (o: OneSided) =>
  device(
    {
      params: { end: 'u32', next: 'u32', brought: 'u32', tokens: 'u32' },
      returns: 'u32',
      using: { ...o.u, ...o.phases.combine, PASSES: passesOver(o.shape) },
    },
    (g, { end, next, brought, tokens }, u) => {
      let last = end;
      if (u.PASSES) {
        if (next < end) {
          const reached = (next / u.PARTS) * u.REPLICAS;
          if (!g.warp.any(brought > reached || tokens > reached)) last = next;
        }
      }
      return last;
    },
  );
