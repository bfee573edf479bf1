/**
 * Rows that travel as e4m3 with scales: push.ts with 1.03 bytes an element instead of 2 or 4. The rank of the experts rounds its
 * partial rows (docs/semantics.md has the arithmetic), the source widens and adds them up.
 *
 * A row in `returned` is vectors of 16 elements, then a word of scales for every 8 of them. (Rows that are put as messages have
 * the words behind each stretch: formats/scaled.ts.) The work is cut for warps, by stretches. As with whole rows nobody waits for a
 * flag: elements and words are EMPTY until they have come. Neither is ever EMPTY by itself: an e4m3 becomes NaN as 0x7f, and
 * formats make no word of all ones.
 */
import { device } from '../../../lang/index.js';
import { dtypes, loadValues, type Rounding, stretchesOf, sumsOf } from '../../layer/index.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, mostHeld, rowSum } from '../common/sum.js';
import { placeOf } from './gather.js';
import type { OneSided } from './kit.js';
import { pushParams } from './push-row.js';
import { sumParams } from './sum-piece.js';
import { sendSum } from './sums.js';
import type { OneSidedShape } from './window.js';

/** How a row is laid out, and cut into parts. */
function rowOf({ output, combine }: OneSidedShape) {
  const { UNITS, STRETCHES } = stretchesOf(output);
  return {
    UNITS,
    STRETCHES,
    PART_STRETCHES: Math.ceil(STRETCHES / combine.parts),
    WORDS: Math.ceil(UNITS / 8),
    /** Where they begin, in words. */
    FIRST_WORD: UNITS * 4,
  };
}

/** One part of a row, rounded. */
export function pushScaled({ shape, phases }: OneSided, { narrow }: Rounding) {
  return device(
    {
      params: pushParams,
      using: {
        ...{ ...phases.combine, row: rowOf(shape), narrow },
        loadValues: loadValues(shape.output, partialDtype(shape)),
      },
    },
    (g, { from, to, part }, u) => {
      const end = g.min((part + 1) * u.row.PART_STRETCHES, g.u32(u.row.STRETCHES));
      const warps = u.team.threads() / 32;
      for (let stretch = part * u.row.PART_STRETCHES + u.team.warp(); stretch < end; stretch += warps) {
        const i = stretch * 32 + g.laneId;
        const values = g.registers('f32', 16);
        u.loadValues({ from, i, values });
        const scales = u.narrow({ values });
        if (i < u.row.UNITS) {
          g.store(to.at(i), g.pack('e4m3', values), { order: 'relaxed', scope: 'sys' });
          if (g.laneId % 8 === 0)
            g.store(to.as('u32').at(u.row.FIRST_WORD + i / 8), scales, { order: 'relaxed', scope: 'sys' });
        }
      }
    },
  );
}

/** A lane's vector of each row of the sum, and its scale. */
function gatherScaled(o: OneSided, { scaleOf }: Rounding) {
  return device(
    {
      params: gatherParams(placeOf(o)),
      using: { ...o.u, ...o.phases.combine, row: rowOf(o.shape), scaleOf },
    },
    (g, { at: { win, token, owners, epoch, patience }, count, i, first, rows, scales }, u) => {
      const mine = win.at(g.rank);
      const turn = token / u.REPLICAS;
      // All of a group's loads before their first use. Lane 4r + s will hold word s of row r.
      let source = g.u32(0);
      let sourced = false;
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length && first + r < count) {
          const peer = owners[first + r]!;
          if (i < u.row.UNITS) rows[r] = u.lookAt({ home: mine.returned.at(peer, turn, i) });
          if (g.laneId / 4 === r) {
            source = peer;
            sourced = true;
          }
        }
      }
      const at = (i / 32) * 4 + (g.laneId % 4);
      let word = g.u32(0);
      if (sourced && at < u.row.WORDS) {
        const home = mine.returned
          .at(source, turn)
          .as('u32')
          .at(u.row.FIRST_WORD + at);
        word = g.load(home, { order: 'relaxed', scope: 'sys' });
        if (word === u.EMPTY) {
          const limit = patience[0]!;
          const came = g.awaitEpoch(home, u.EMPTY, { until: '!=', order: 'relaxed', scope: 'sys', limit });
          word = g.load(home, { order: 'relaxed', scope: 'sys' });
          if (!came) {
            if (patience[0]! > 0) u.failed({ failure: mine.failure, peer: source, epoch });
            patience[0] = g.u32(0);
          }
        }
        g.store(home, u.EMPTY, { order: 'relaxed', scope: 'sys' });
      }
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length && first + r < count && i < u.row.UNITS) {
          const peer = owners[first + r]!;
          const home = mine.returned.at(peer, turn, i);
          if (u.isEmpty({ vector: rows[r]! })) rows[r] = u.awaitVector({ mine, home, peer, epoch, patience });
          u.makeEmpty({ home });
        }
      }
      for (const r of g.unroll(rows.length))
        scales[r] = u.scaleOf({ word: g.warp.shuffle(word, r * 4 + g.laneId / 8) });
    },
  );
}

/** Adds up one part of a token's row. The warps take stretches of it in turn. */
export function sumScaled(o: OneSided, rounding: Rounding) {
  const { dtype } = o.shape.output;
  const rows = o.u.ROWS;
  return device(
    {
      params: sumParams(o),
      using: {
        ...{ ...o.u, ...o.phases.combine, row: rowOf(o.shape), sumsOf: sumsOf(dtype), sendSum: sendSum(o) },
        /** The vectors that hold 16 sums. */
        VECTORS: dtypes[dtype].size,
        rowSum: rowSum({
          ...{ rows, most: mostHeld(rows), lane: 'e4m3', lanes: 16, scaled: true },
          ...{ at: placeOf(o), gather: gatherScaled(o, rounding) },
        }),
      },
    },
    (g, { win, out, id, token, part, epoch, patience }, u) => {
      const owners = g.registers('u32', u.ROWS);
      const count = u.findOwners({ expert: id, owners });
      const end = g.min((part + 1) * u.row.PART_STRETCHES, g.u32(u.row.STRETCHES));
      const warps = u.team.threads() / 32;
      for (let stretch = part * u.row.PART_STRETCHES + u.team.warp(); stretch < end; stretch += warps) {
        const i = stretch * 32 + g.laneId;
        const total = g.registers('f32', 16);
        u.rowSum({ at: { win, token, owners, epoch, patience }, count, unit: i, i, word: 0, values: total });
        if (i < u.row.UNITS) {
          const to = out.as('v16').at((token * u.row.UNITS + i) * u.VECTORS);
          for (const v of g.unroll(u.VECTORS)) {
            const vector = u.sumsOf({ values: total, v });
            u.storeSum({ to: to.at(v), vector });
            if (u.SHARES) u.sendSum({ win, token, i: i * u.VECTORS + v, vector });
          }
        }
      }
    },
  );
}
