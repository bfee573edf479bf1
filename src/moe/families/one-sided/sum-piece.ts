/** Adds up one part of a token's row, vector by vector, and writes it to the caller's tensor. */
import { device, pointer, registers } from '../../../lang/index.js';
import { mostRows } from '../common/owners.js';
import { partialDtype, rowsOf } from '../common/received.js';
import { type Gather, negativeZeros, rowSum, treeSum } from '../common/sum.js';
import { lookPulled, lookPushed, placeOf, settlePushed } from './gather.js';
import type { OneSided } from './kit.js';
import { sendSum } from './sums.js';
import { teamSize } from './team.js';
import type { OneSidedShape } from './window.js';

export const sumParams = ({ shape, at: { win } }: OneSided) =>
  ({
    win,
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

/** What both functions ask that add up vectors. */
function using(o: OneSided) {
  const { vectors, lanes, units } = rowsOf(o.shape, partialDtype(o.shape));
  return {
    ...{ ...o.u, ...o.phases.combine, sendSum: sendSum(o) },
    ...{ VECTORS: vectors, LANES: lanes, UNITS: units, STRIP: stripVectors(o.shape) },
  };
}

export function sumPiece(o: OneSided, gather: Gather<At>) {
  const asked = using(o);
  const { VECTORS, LANES, UNITS, PARTS, ROWS, DTYPE } = asked;
  return device(
    {
      params: sumParams(o),
      using: {
        ...{ ...asked, PART_UNITS: Math.ceil(UNITS / PARTS), sumStrip: sumStrip(o) },
        // A row that is no whole vectors comes value by value, in the first lane.
        rowSum: rowSum({ rows: ROWS, lane: VECTORS ? DTYPE : 'f32', lanes: LANES, at: placeOf(o), gather }),
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
export function sumStrip(o: OneSided) {
  const { dtype } = o.shape.output;
  return device(
    {
      /** `from`: the first of them. */
      params: { at: placeOf(o), out: pointer(dtype), from: 'u32', count: 'u32' },
      using: {
        ...{ ...using(o), NEGATIVE_ZEROS: negativeZeros[dtype], treeSum },
        ...{ look: (o.u.PUSH ? lookPushed : lookPulled)(o), settle: settlePushed(o) },
      },
    },
    (g, { at, out, from, count }, u) => {
      const { win, token } = at;
      // As in `rowSum`: −0 stands for rows that a token has not.
      const nothing = g.u32(count === 0 ? 0 : u.NEGATIVE_ZEROS);
      const rows = g.registers('v16', u.STRIP * u.ROWS, g.pack('u32', [nothing, nothing, nothing, nothing]));
      for (const w of g.unroll(u.STRIP)) {
        const i = from + w * u.team.threads();
        u.look({ at, count, i, first: 0, base: w * u.ROWS, held: u.ROWS, rows });
      }
      for (const w of g.unroll(u.STRIP)) {
        const i = from + w * u.team.threads();
        if (u.PUSH) u.settle({ at, count, i, first: 0, base: w * u.ROWS, held: u.ROWS, rows });
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
