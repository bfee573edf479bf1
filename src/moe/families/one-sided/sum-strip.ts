/** Adds up several vectors of a token's row, all of whose loads leave before the first is used. */
import { device, peers, pointer, registers } from '../../../lang/index.js';
import { partialDtype, rowsOf } from '../common/received.js';
import { negativeZeros, treeSum } from '../common/sum.js';
import { lookPulled, lookPushed, settlePushed } from './gather.js';
import { handOn } from './sums.js';
import { team, teamSize } from './team.js';
import { mostRows, type OneSidedShape, type OneSidedWindow, pushes, sharesSums } from './window.js';

/** Loads in flight for sums: more would not fit beside them in half a thread's registers. */
const loads = (threads: number): number => Math.min(8, Math.floor(8192 / threads));

/**
 * Vectors that a thread adds up at a time, a team's threads apart. Sums of many rows have enough loads in flight as it is,
 * and so have threads whose share of a part is one vector.
 */
export function stripVectors(shape: OneSidedShape): number {
  const { combine } = shape;
  const { vectors, units } = rowsOf(shape, partialDtype(shape));
  if (!vectors) return 1;
  const share = Math.floor(Math.ceil(units / combine.parts) / teamSize(combine));
  return Math.max(1, Math.min(share, Math.floor(loads(combine.threads) / mostRows(shape))));
}

export function sumStrip(shape: OneSidedShape, window: OneSidedWindow) {
  const { dtype } = shape.output;
  const { lanes, units } = rowsOf(shape, partialDtype(shape));
  return device(
    {
      name: 'sum_strip',
      params: {
        win: peers(window),
        out: pointer(dtype),
        token: 'u32',
        /** The first of them. */
        from: 'u32',
        count: 'u32',
        owners: registers('u32'),
        epoch: 'u32',
        patience: registers('u32', 1),
      },
      using: {
        WIDE: stripVectors(shape),
        ROWS: mostRows(shape),
        UNITS: units,
        LANES: lanes,
        DTYPE: dtype,
        NEGATIVE_ZEROS: negativeZeros[dtype],
        team: team(shape.combine),
        SHARES: sharesSums(shape),
        handOn: handOn(shape, window),
        look: pushes(shape) ? lookPushed(shape, window) : lookPulled(shape, window),
        SETTLES: shape.combine.way === 'push',
        settle: settlePushed(shape, window),
        treeSum,
      },
    },
    (g, { win, out, token, from, count, owners, epoch, patience }, u) => {
      // As in `rowSum`: −0 stands for rows that a token has not.
      const nothing = g.u32(count === 0 ? 0 : u.NEGATIVE_ZEROS);
      const rows = g.registers('v16', u.WIDE * u.ROWS, g.pack('u32', [nothing, nothing, nothing, nothing]));
      for (const w of g.unroll(u.WIDE)) {
        const at = { win, token, i: from + w * u.team.threads(), count, owners, epoch, patience };
        u.look({ at, first: 0, base: w * u.ROWS, held: u.ROWS, rows });
      }
      for (const w of g.unroll(u.WIDE)) {
        const i = from + w * u.team.threads();
        const at = { win, token, i, count, owners, epoch, patience };
        if (u.SETTLES) u.settle({ at, first: 0, base: w * u.ROWS, held: u.ROWS, rows });
        const total = g.registers('f32', u.LANES);
        for (const lane of g.unroll(u.LANES)) {
          const values = g.registers('f32', u.ROWS);
          for (const r of g.unroll(u.ROWS)) values[r] = g.f32(g.lane(rows[w * u.ROWS + r]!, u.DTYPE, lane));
          total[lane] = u.treeSum({ values });
        }
        g.store(out.as('v16').at(token * u.UNITS + i), g.pack(u.DTYPE, total), { cache: 'stream' });
        if (u.SHARES) u.handOn({ win, token, i, vector: g.pack(u.DTYPE, total) });
      }
    },
  );
}
