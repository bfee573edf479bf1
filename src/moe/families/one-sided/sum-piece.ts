/** Adds up one part of a token's row, vector by vector, and writes it to the caller's tensor. */
import { device, peers, pointer, registers } from '../../../lang/index.js';
import { findOwners, mostRows } from '../common/owners.js';
import { partialDtype, rowsOf } from '../common/received.js';
import { type Gather, negativeZeros, rowSum, storeSum, treeSum } from '../common/sum.js';
import { lookPulled, lookPushed, placeOf, settlePushed } from './gather.js';
import { sendSum } from './sums.js';
import { team, teamSize } from './team.js';
import { type OneSidedShape, type OneSidedWindow, pushes, sharesSums } from './window.js';

export const sumParams = (shape: OneSidedShape, window: OneSidedWindow) =>
  ({
    win: peers(window),
    /** The sums of all tokens: [tokens][row]. */
    out: pointer(shape.output.dtype),
    /** The expert's id, in lane k that of route k. */
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
        storeSum: storeSum(shape),
        sendSum: sendSum(shape, window),
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
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      let i = part * u.PART_UNITS + u.team.thread();
      const at = { win, token, owners, epoch, patience };
      if (u.STRIP > 1) {
        for (; i + (u.STRIP - 1) * u.team.threads() < end; i += u.STRIP * u.team.threads())
          u.sumStrip({ at, out, from: i, count });
      }
      for (; i < end; i += u.team.threads()) {
        const total = g.registers('f32', u.LANES);
        u.rowSum({ at, count, unit: i, i, word: 0, values: total });
        const to = token * u.UNITS + i;
        if (u.VECTORS) u.storeSum({ to: out.as('v16').at(to), vector: g.pack(u.DTYPE, total) });
        else g.store(out.at(to), g.convert(u.DTYPE, total[0]!));
        if (u.SHARES) u.sendSum({ win, token, i, vector: g.pack(u.DTYPE, total) });
      }
    },
  );
}

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

/** Adds up several vectors of a token's row, all of whose loads leave before the first is used. */
export function sumStrip(shape: OneSidedShape, window: OneSidedWindow) {
  const { dtype } = shape.output;
  const { lanes, units } = rowsOf(shape, partialDtype(shape));
  return device(
    {
      /** `from`: the first of them. */
      params: { at: placeOf(window), out: pointer(dtype), from: 'u32', count: 'u32' },
      using: {
        WIDE: stripVectors(shape),
        ROWS: mostRows(shape),
        UNITS: units,
        LANES: lanes,
        DTYPE: dtype,
        NEGATIVE_ZEROS: negativeZeros[dtype],
        team: team(shape.combine),
        SHARES: sharesSums(shape),
        storeSum: storeSum(shape),
        sendSum: sendSum(shape, window),
        look: pushes(shape) ? lookPushed(shape, window) : lookPulled(shape, window),
        SETTLES: pushes(shape),
        settle: settlePushed(shape, window),
        treeSum,
      },
    },
    (g, { at, out, from, count }, u) => {
      const { win, token } = at;
      // As in `rowSum`: −0 stands for rows that a token has not.
      const nothing = g.u32(count === 0 ? 0 : u.NEGATIVE_ZEROS);
      const rows = g.registers('v16', u.WIDE * u.ROWS, g.pack('u32', [nothing, nothing, nothing, nothing]));
      for (const w of g.unroll(u.WIDE)) {
        const i = from + w * u.team.threads();
        u.look({ at, count, i, first: 0, base: w * u.ROWS, held: u.ROWS, rows });
      }
      for (const w of g.unroll(u.WIDE)) {
        const i = from + w * u.team.threads();
        if (u.SETTLES) u.settle({ at, count, i, first: 0, base: w * u.ROWS, held: u.ROWS, rows });
        const total = g.registers('f32', u.LANES);
        for (const lane of g.unroll(u.LANES)) {
          const values = g.registers('f32', u.ROWS);
          for (const r of g.unroll(u.ROWS)) values[r] = g.f32(g.lane(rows[w * u.ROWS + r]!, u.DTYPE, lane));
          total[lane] = u.treeSum({ values });
        }
        u.storeSum({ to: out.as('v16').at(token * u.UNITS + i), vector: g.pack(u.DTYPE, total) });
        if (u.SHARES) u.sendSum({ win, token, i, vector: g.pack(u.DTYPE, total) });
      }
    },
  );
}
