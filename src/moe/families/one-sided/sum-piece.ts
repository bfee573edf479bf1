/** Adds up one part of a token's row, vector by vector, and writes it to the caller's tensor. */
import { device, peers, pointer, registers } from '../../../lang/index.js';
import { findOwners } from '../common/owners.js';
import { partialDtype, rowsOf } from '../common/received.js';
import { type Gather, rowSum } from '../common/sum.js';
import { awaitCopied } from './copies.js';
import { placeOf } from './gather.js';
import { stripVectors, sumStrip } from './sum-strip.js';
import { handOn } from './sums.js';
import { team } from './team.js';
import { mostRows, type OneSidedShape, type OneSidedWindow, sharesSums } from './window.js';

export const sumParams = (shape: OneSidedShape, window: OneSidedWindow) =>
  ({
    win: peers(window),
    /** [tokens][row] */
    out: pointer(shape.output.dtype),
    /** In lane k that of route k. */
    id: 'i32',
    token: 'u32',
    part: 'u32',
    epoch: 'u32',
    patience: registers('u32', 1),
  }) as const;

type At = ReturnType<typeof placeOf>['of'];

export function sumPiece(shape: OneSidedShape, window: OneSidedWindow, gather: Gather<At>) {
  const { dtype } = shape.output;
  const { vectors, lanes, units } = rowsOf(shape, partialDtype(shape));
  return device(
    {
      name: 'sum_piece',
      params: sumParams(shape, window),
      using: {
        ROWS: mostRows(shape),
        findOwners: findOwners(shape),
        UNITS: units,
        PART_UNITS: Math.ceil(units / shape.combine.parts),
        VECTORS: vectors,
        LANES: lanes,
        DTYPE: dtype,
        team: team(shape.combine),
        SHARES: sharesSums(shape),
        handOn: handOn(shape, window),
        COPIED: shape.combine.way === 'bulk',
        awaitCopied: awaitCopied(shape, window),
        STRIP: stripVectors(shape),
        sumStrip: sumStrip(shape, window),
        rowSum: rowSum({
          rows: mostRows(shape),
          // A row that is no whole vectors comes value by value, in the first lane.
          lane: vectors ? dtype : 'f32',
          lanes,
          at: placeOf(window),
          gather,
        }),
      },
    },
    (g, { win, out, id, token, part, epoch, patience }, u) => {
      const owners = g.registers('u32', u.ROWS);
      const count = u.findOwners({ expert: id, owners });
      // Unlike vectors that speak for themselves, what has not come may not be looked at.
      if (u.COPIED) {
        if (!u.awaitCopied({ mine: win.at(g.rank), id, token, part, epoch, patience })) return;
      }
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      let i = part * u.PART_UNITS + u.team.thread();
      if (u.STRIP > 1) {
        for (; i + (u.STRIP - 1) * u.team.threads() < end; i += u.STRIP * u.team.threads())
          u.sumStrip({ win, out, token, from: i, count, owners, epoch, patience });
      }
      for (; i < end; i += u.team.threads()) {
        const total = g.registers('f32', u.LANES);
        u.rowSum({ at: { win, token, i, count, owners, epoch, patience }, count, total });
        const to = token * u.UNITS + i;
        if (u.VECTORS) g.store(out.as('v16').at(to), g.pack(u.DTYPE, total), { cache: 'stream' });
        else g.store(out.at(to), g.convert(u.DTYPE, total[0]!));
        if (u.SHARES) u.handOn({ win, token, i, vector: g.pack(u.DTYPE, total) });
      }
    },
  );
}
