/** Combine: behind a meeting, which says that all experts are done, a warp takes a token and adds up its owners' rows. */

import { device, kernel, peers, record, registers } from '../../../../src/lang/index.js';
import { findOwners } from '../../../../src/moe/families/common/owners.js';
import { combineParams } from '../../../../src/moe/families/common/params.js';
import { gatherParams, rowSum } from '../../../../src/moe/families/common/sum.js';
import type { Layer } from '../../../../src/moe/layer/index.js';
import { meet } from './meet.js';
import type { NaiveWindow } from './window.js';

export function combineKernel(layer: Layer, window: NaiveWindow) {
  const { dtype, hidden } = layer.output;
  const rows = Math.min(layer.topK, layer.ranks);
  const at = placeOf(window);
  return kernel(
    {
      name: 'naive_combine',
      params: combineParams(window, layer),
      using: {
        K: layer.topK,
        ROWS: rows,
        HIDDEN: hidden,
        DTYPE: dtype,
        findOwners: findOwners(layer),
        rowSum: rowSum({ rows, lane: 'f32', lanes: 1, at, gather: gather(layer, window) }),
        meet: meet(window, layer, 'combine'),
      },
    },
    (g, { win, topkIds, out, tokens, limit }, u) => {
      g.awaitPrevious();
      u.meet({ win, epoch: g.load(win.at(g.rank).rounds.at(0)), limit });

      for (let token = g.warpId; token < tokens; token += g.blockDim.x / 32) {
        let expert = g.i32(-1);
        if (g.laneId < u.K) expert = g.load(topkIds.at(token * u.K + g.laneId));
        const owners = g.registers('u32', u.ROWS);
        const count = u.findOwners({ expert, owners });
        for (let i = g.laneId; i < u.HIDDEN; i += 32) {
          const total = g.registers('f32', 1);
          u.rowSum({ at: { win, token, i, owners, count }, count, unit: i, i, word: 0, values: total });
          g.store(out.at(token * u.HIDDEN + i), g.convert(u.DTYPE, total[0]!));
        }
      }
    },
  );
}

/** One value of a token, and who has rows of it: the first `count` of `owners`, in the order of the sum. */
const placeOf = (window: NaiveWindow) =>
  record({ win: peers(window), token: 'u32', i: 'u32', owners: registers('u32'), count: 'u32' });

const gather = ({ output }: Layer, window: NaiveWindow) =>
  device(
    { name: 'gather', params: gatherParams(placeOf(window)), using: { DTYPE: output.dtype } },
    (g, { at: { win, token, i, owners, count }, first, rows }, { DTYPE }) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          if (first + r < count) {
            const row = win.at(owners[first + r]!).output.at(g.rank, token, 0);
            rows[r] = g.pack('f32', [g.f32(g.load(row.as(DTYPE).at(i))), 0, 0, 0]);
          }
        }
      }
    },
  );
