/** A token's routes: where dispatch reads them, and how it tells them to every rank. */
import { device, peers, pointer, record, registers } from '../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { expertOwner } from '../common/owners.js';
import { release } from './flags.js';
import { team } from './team.js';
import { type OneSidedShape, type OneSidedWindow, pushes } from './window.js';

/** Route k of a token, in lane k of every warp. Tokens that were not brought have none. */
export const routeOf = (shape: OneSidedShape) =>
  device(
    {
      name: 'route_of',
      params: { topkIds: pointer('i32'), topkWeights: pointer('f32'), token: 'u32', tokens: 'u32' },
      returns: record({ id: 'i32', weight: 'f32' }),
      using: { K: shape.topK, WEIGHTS: shape.weights },
    },
    (g, { topkIds, topkWeights, token, tokens }, u) => {
      let id = g.i32(-1);
      let weight = g.f32(0);
      if (token < tokens && g.laneId < u.K) {
        id = g.load(topkIds.at(token * u.K + g.laneId));
        if (u.WEIGHTS) weight = g.load(topkWeights.at(token * u.K + g.laneId));
      }
      return { id, weight };
    },
  );

/** Ids and weights go to every rank, a warp for each: what is not its own reads -1 there. */
export function tellRoutes(shape: OneSidedShape, window: OneSidedWindow) {
  return device(
    {
      name: 'tell_routes',
      params: {
        win: peers(window),
        token: 'u32',
        id: 'i32',
        weight: 'f32',
        epoch: 'u32',
        slots: registers('u32', 2),
      },
      using: {
        RANKS: shape.ranks,
        REPLICAS: sharing(shape).replicas,
        K: shape.topK,
        WEIGHTS: shape.weights,
        PUSH: pushes(shape),
        ownerOf: expertOwner(shape),
        team: team(shape.dispatch),
        beforeFirstStore: beforeFirstStore(shape, window),
      },
    },
    (g, { win, token, id, weight, epoch, slots }, u) => {
      u.beforeFirstStore({ win, epoch, slots });
      const group = g.rank / u.REPLICAS;
      const owner = u.ownerOf({ expert: id });
      for (let to = u.team.warp(); to < u.RANKS; to += u.team.threads() / 32) {
        const there = win.at(to);
        if (u.PUSH) {
          const any = g.warp.any(owner === to);
          if (g.laneId === 0) g.store(there.present.at(epoch % 2, group, token), g.u32(any));
        }
        if (g.laneId < u.K) {
          g.store(there.experts.at(group, token, g.laneId), owner === to ? id : -1);
          if (u.WEIGHTS) g.store(there.weights.at(group, token, g.laneId), owner === to ? weight : 0);
        }
      }
    },
  );
}

/**
 * Whether a dispatch must wait until its peers have released the slots. Behind a pulling combine they have, and behind the
 * receive of a split one, which waited for it.
 */
export const awaitsSlots = (shape: OneSidedShape): boolean => pushes(shape) && !shape.split;

/** Waits until slots are free, unless it has. `slots`: see dispatch.ts. */
export function beforeFirstStore(shape: OneSidedShape, window: OneSidedWindow) {
  return device(
    {
      name: 'before_first_store',
      params: { win: peers(window), epoch: 'u32', slots: registers('u32', 2) },
      using: { AWAITS: awaitsSlots(shape), awaitSlots: release(window, shape, 'dispatch').awaitSlots },
    },
    (g, { win, epoch, slots }, { AWAITS, awaitSlots }) => {
      if (!AWAITS) return;
      if (slots[1] === 0) {
        if (!awaitSlots({ win, round: epoch - 1, epoch, limit: slots[0]! })) slots[0] = g.u32(0);
        g.warp.barrier();
        slots[1] = g.u32(1);
      }
    },
  );
}
