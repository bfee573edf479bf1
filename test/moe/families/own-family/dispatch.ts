/** Dispatch: a warp takes a token and stores its routes to every rank, its rows to those that own one of its experts. */

import { device, kernel, peers, pointer } from '../../../../src/lang/index.js';
import { expertOwner } from '../../../../src/moe/families/common/owners.js';
import { dispatchParams } from '../../../../src/moe/families/common/params.js';
import { partsOf } from '../../../../src/moe/families/common/parts.js';
import type { Layer } from '../../../../src/moe/layer/index.js';
import { meet } from './meet.js';
import type { NaiveWindow } from './window.js';

export const dispatchKernel = (layer: Layer, window: NaiveWindow) =>
  kernel(
    {
      name: 'naive_dispatch',
      params: { ...dispatchParams(window, layer), limit: 'u32' },
      using: {
        RANKS: layer.ranks,
        K: layer.topK,
        TOKENS: layer.maxTokens,
        WEIGHTS: layer.weights,
        PAYLOADS: layer.payloads.length,
        ownerOf: expertOwner(layer),
        storeRow: layer.payloads.map((_, p) => storeRow(layer, window, p)),
        meet: meet(window, layer, 'dispatch'),
      },
    },
    (g, { win, topkIds, topkWeights, rows, tokens, limit }, u) => {
      g.awaitPrevious();
      const count = win.at(g.rank).rounds.at(0);
      const epoch = g.load(count) + 1;
      // Slots that no token takes are told too: their routes are -1.
      for (let token = g.warpId; token < u.TOKENS; token += g.blockDim.x / 32) {
        const route = token * u.K + g.laneId;
        let id = g.i32(-1);
        let weight = g.f32(0);
        if (token < tokens && g.laneId < u.K) {
          id = g.load(topkIds.at(route));
          if (u.WEIGHTS) weight = g.load(topkWeights[0]!.at(route));
        }
        const owner = u.ownerOf({ expert: id });
        for (let to = g.u32(0); to < u.RANKS; to += 1) {
          const there = win.at(to);
          if (g.laneId < u.K) {
            g.store(there.experts.at(g.rank, token, g.laneId), owner === to ? id : -1);
            if (u.WEIGHTS) g.store(there.weights.at(g.rank, token, g.laneId), owner === to ? weight : 0);
          }
          if (g.warp.any(owner === to)) {
            for (const p of g.unroll(u.PAYLOADS)) u.storeRow[p]!({ win, from: rows[p]!, token, to });
          }
        }
      }
      u.meet({ win, epoch, limit });
      if (g.threadIdx.x === 0) g.store(count, epoch);
    },
  );

function storeRow(layer: Layer, window: NaiveWindow, payload: number) {
  const { unit, rowUnits } = partsOf(layer, payload, 1);
  return device(
    {
      name: 'store_row',
      params: { win: peers(window), from: pointer('v16'), token: 'u32', to: 'u32' },
      using: { P: payload, UNIT: unit, UNITS: rowUnits },
    },
    (g, { win, from, token, to }, u) => {
      const there = win.at(to).payloads[u.P]!.at(g.rank, token, 0);
      for (let i = g.laneId; i < u.UNITS; i += 32)
        g.store(there.at(i), g.load(from.as(u.UNIT).at(token * u.UNITS + i)));
    },
  );
}
