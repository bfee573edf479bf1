/** A token's routes: where dispatch reads them, and how it tells them to every rank. */
import { device, record } from '../../../lang/index.js';
import { inputsOf } from '../common/params.js';
import { prefetchPart } from '../common/prefetch.js';
import type { OneSided } from './kit.js';

/** Route k of a token, where it goes, in lane k of every warp. Tokens that were not brought have none. */
export const routeOf = ({ shape, u }: OneSided) =>
  device(
    {
      params: { inputs: inputsOf(shape), token: 'u32' },
      returns: record({ id: 'i32', weight: 'f32' }),
      using: u,
    },
    (g, { inputs: { topkIds, topkWeights, placing, tokens }, token }, u) => {
      let id = g.i32(-1);
      let weight = g.f32(0);
      if (token < tokens && g.laneId < u.K) {
        id = u.placeAt({ topkIds, placing, token, k: g.laneId });
        if (u.WEIGHTS) weight = g.load(topkWeights[0]!.at(token * u.K + g.laneId));
      }
      return { id, weight };
    },
  );

/**
 * Ids and weights go to every rank, a warp for each: what is not its own reads -1 there. For a rank that is left out this one
 * writes what that one would have sent here, had it no routes: its slots read -1.
 */
export function tellRoutes({ at: { win }, u, phases }: OneSided) {
  return device(
    {
      params: { win, mask: 'v16', token: 'u32', id: 'i32', weight: 'f32', epoch: 'u32' },
      using: { ...u, ...phases.dispatch },
    },
    (g, { win, mask, token, id, weight, epoch }, u) => {
      const owner = u.ownerOf({ expert: id });
      for (let to = u.team.warp(); to < u.RANKS; to += u.team.threads() / 32) {
        const out = u.isOut({ mask, rank: to });
        const there = win.at(out ? g.rank : to);
        const group = (out ? to : g.rank) / u.REPLICAS;
        if (u.ROUTES) {
          const here = g.warp.ballot(owner === to);
          if (g.laneId === 0) g.store(there.present.at(epoch % 2, group, token), here);
        } else if (u.PUSH) {
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

/** Asks for each team's first rows, ids and weights to be brought near. */
export function prefetchRows({ shape, u, phases }: OneSided) {
  return device(
    {
      params: { inputs: inputsOf(shape) },
      using: { ...u, ...phases.dispatch, prefetchPart: prefetchPart(shape, shape.dispatch.parts) },
    },
    (g, { inputs: { topkIds, topkWeights, rows, tokens } }, u) => {
      const piece = u.team.index() * g.gridDim.x + g.blockIdx.x;
      const token = (piece / u.PARTS) * u.REPLICAS + (g.rank % u.REPLICAS);
      if (token >= tokens) return;
      const part = piece % u.PARTS;
      u.prefetchPart({ rows, token, part, thread: u.team.thread(), threads: u.team.threads() });
      if (u.team.thread() === 0) {
        g.prefetch(topkIds.at(token * u.K));
        if (u.WEIGHTS) g.prefetch(topkWeights[0]!.at(token * u.K));
      }
    },
  );
}
