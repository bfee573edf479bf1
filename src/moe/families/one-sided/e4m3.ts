/**
 * Rows that travel as e4m3: push.ts with 1.03 bytes an element instead of 2 or 4. The rank of the experts rounds its
 * partial rows (docs/semantics.md has the arithmetic), the source widens and adds them up.
 *
 * A row in `returned` is vectors of 16 elements, then an f32 scale for every 8 of them. (Rows that are put as messages lie
 * otherwise, scales behind each stretch: common/rounded.ts.) The work is cut for warps: a stretch is 32 vectors of a row, with
 * the 4 scales that belong to them. As with whole rows nobody waits for a flag:
 * elements and scales are EMPTY until they have come. Neither is ever EMPTY by itself: NaN becomes 0x7f in the one and
 * 0x7fc00000 in the other, and scales are positive.
 */
import { device, pointer, registers, windowOf } from '../../../lang/index.js';
import { dtypes, scaleBlock, sharing } from '../../layer/index.js';
import { findOwners } from '../common/owners.js';
import { quantise } from '../common/quantise.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, rowSum } from '../common/sum.js';
import { recordFailure } from '../common/waits.js';
import { awaitVector, emptyWord, isEmpty, lookAt, makeEmpty } from './arrival.js';
import { placeOf } from './gather.js';
import { pushParams } from './push-row.js';
import { sumParams } from './sum-piece.js';
import { handOn } from './sums.js';
import { team } from './team.js';
import { mostRows, type OneSidedShape, type OneSidedWindow, sharesSums } from './window.js';

/** How a row is laid out, and cut into parts. */
function rowOf({ output: { hidden }, combine }: OneSidedShape) {
  const stretches = Math.ceil(hidden / (32 * 16));
  return {
    UNITS: hidden / 16,
    SCALES: Math.ceil(hidden / scaleBlock),
    STRETCHES: stretches,
    PART_STRETCHES: Math.ceil(stretches / combine.parts),
    /** Where the scales begin, in scales. */
    FIRST_SCALE: hidden / 4,
  };
}

/** One part of a row, rounded. */
export function pushE4m3(shape: OneSidedShape) {
  const { size } = dtypes[partialDtype(shape)];
  return device(
    {
      name: 'push_e4m3',
      params: pushParams,
      using: {
        row: rowOf(shape),
        team: team(shape.combine),
        DTYPE: partialDtype(shape),
        /** The vectors that hold 16 elements, and the elements in each. */
        VECTORS: size,
        LANES: 16 / size,
        quantise,
      },
    },
    (g, { from, to, part }, u) => {
      const end = g.min((part + 1) * u.row.PART_STRETCHES, g.u32(u.row.STRETCHES));
      const warps = u.team.threads() / 32;
      for (let stretch = part * u.row.PART_STRETCHES + u.team.warp(); stretch < end; stretch += warps) {
        const i = stretch * 32 + g.laneId;
        const row = g.registers('v16', u.VECTORS);
        if (i < u.row.UNITS) {
          for (const v of g.unroll(u.VECTORS))
            row[v] = g.load(from.at(i * u.VECTORS + v), { cache: 'stream' });
        }
        const values = g.registers('f32', 16);
        for (const n of g.unroll(16))
          values[n] = g.f32(g.lane(row[(n - (n % u.LANES)) / u.LANES]!, u.DTYPE, n % u.LANES));
        const scale = u.quantise({ values });
        if (i < u.row.UNITS) {
          g.store(to.at(i), g.pack('e4m3', values), { order: 'relaxed', scope: 'sys' });
          if (g.laneId % 8 === 0)
            g.store(to.as('u32').at(u.row.FIRST_SCALE + i / 8), scale, { order: 'relaxed', scope: 'sys' });
        }
      }
    },
  );
}

/** A lane's vector of each row of the sum, and the scale that it shares with 7 others. */
function gatherE4m3(shape: OneSidedShape, window: OneSidedWindow) {
  return device(
    {
      name: 'gather_e4m3',
      params: gatherParams(placeOf(window)),
      using: {
        row: rowOf(shape),
        REPLICAS: sharing(shape).replicas,
        awaitScale: awaitScale(window),
        awaitVector: awaitVector(window),
        isEmpty,
        lookAt,
        makeEmpty,
        /** The bits of 1. */
        ONE: 0x3f800000,
      },
    },
    (g, { at: { win, token, i, count, owners, epoch, patience }, first, rows, scales }, u) => {
      const mine = win.at(g.rank);
      const turn = token / u.REPLICAS;
      // All of a group's loads before their first use. Lane 4r + s will hold scale s of row r.
      let source = g.u32(0);
      let sourced = false;
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          if (first + r < count) {
            const peer = owners[first + r]!;
            if (i < u.row.UNITS) rows[r] = u.lookAt({ home: mine.returned.at(peer, turn, i) });
            if (g.laneId / 4 === r) {
              source = peer;
              sourced = true;
            }
          }
        }
      }
      const block = (i / 32) * 4 + (g.laneId % 4);
      let scale = g.u32(u.ONE);
      if (sourced && block < u.row.SCALES) {
        const home = mine.returned
          .at(source, turn)
          .as('u32')
          .at(u.row.FIRST_SCALE + block);
        scale = u.awaitScale({ mine, home, peer: source, epoch, patience });
      }
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          if (first + r < count && i < u.row.UNITS) {
            const peer = owners[first + r]!;
            const home = mine.returned.at(peer, turn, i);
            if (u.isEmpty({ vector: rows[r]! }))
              rows[r] = u.awaitVector({ mine, home, peer, epoch, patience });
            u.makeEmpty({ home });
          }
        }
      }
      for (const r of g.unroll(rows.length))
        scales[r] = g.bits('f32', g.warp.shuffle(scale, r * 4 + g.laneId / 8));
    },
  );
}

/** Waits for a scale, and makes its place EMPTY again. */
function awaitScale(window: OneSidedWindow) {
  return device(
    {
      name: 'await_scale',
      params: {
        mine: windowOf(window),
        home: pointer('u32'),
        peer: 'u32',
        epoch: 'u32',
        patience: registers('u32', 1),
      },
      returns: 'u32',
      using: { EMPTY: emptyWord, failed: recordFailure('combine') },
    },
    (g, { mine, home, peer, epoch, patience }, { EMPTY, failed }) => {
      let scale = g.load(home, { order: 'relaxed', scope: 'sys' });
      if (scale === EMPTY) {
        // EMPTY is negative and scales are not: they have all reached 0.
        const came = g.awaitEpoch(home, 0, { order: 'relaxed', scope: 'sys', limit: patience[0]! });
        scale = g.load(home, { order: 'relaxed', scope: 'sys' });
        if (!came) {
          if (patience[0]! > 0) failed({ failure: mine.failure, peer, epoch });
          patience[0] = g.u32(0);
        }
      }
      g.store(home, EMPTY, { order: 'relaxed', scope: 'sys' });
      return scale;
    },
  );
}

/** Adds up one part of a token's row. The warps take stretches of it in turn. */
export function sumE4m3(shape: OneSidedShape, window: OneSidedWindow) {
  const { dtype } = shape.output;
  const rows = mostRows(shape);
  const { size } = dtypes[dtype];
  return device(
    {
      name: 'sum_e4m3',
      params: sumParams(shape, window),
      using: {
        row: rowOf(shape),
        team: team(shape.combine),
        ROWS: rows,
        findOwners: findOwners(shape),
        DTYPE: dtype,
        /** The vectors that hold 16 sums, and the sums in each. */
        VECTORS: size,
        LANES: 16 / size,
        SHARES: sharesSums(shape),
        handOn: handOn(shape, window),
        rowSum: rowSum({
          rows,
          // Sums of several groups take registers from the rows of the next.
          most: rows > 8 ? 4 : 8,
          lane: 'e4m3',
          lanes: 16,
          scaled: true,
          at: placeOf(window),
          gather: gatherE4m3(shape, window),
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
        u.rowSum({ at: { win, token, i, count, owners, epoch, patience }, count, total });
        if (i < u.row.UNITS) {
          const to = out.as('v16').at((token * u.row.UNITS + i) * u.VECTORS);
          for (const v of g.unroll(u.VECTORS)) {
            const some = g.registers('f32', u.LANES);
            for (const lane of g.unroll(u.LANES)) some[lane] = total[v * u.LANES + lane]!;
            g.store(to.at(v), g.pack(u.DTYPE, some), { cache: 'stream' });
            if (u.SHARES) u.handOn({ win, token, i: i * u.VECTORS + v, vector: g.pack(u.DTYPE, some) });
          }
        }
      }
    },
  );
}
