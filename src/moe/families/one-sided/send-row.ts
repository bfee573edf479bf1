/** One part of one payload row on its way to every rank that wants it: through registers, or rounded to e4m3. */
import { device, pointer, registers } from '../../../lang/index.js';
import { partsOf } from '../common/parts.js';
import { roundVector } from '../common/quantise.js';
import type { OneSided } from './kit.js';
import { depth } from './window.js';

const params = ({ at: { win } }: OneSided) =>
  ({
    win,
    /** The rows of all tokens: [tokens][row]. */
    from: pointer('v16'),
    token: 'u32',
    tokens: 'u32',
    part: 'u32',
    /** The expert's id, in lane k that of route k. */
    id: 'i32',
  }) as const;

export const sendRow = (o: OneSided, payload: number) =>
  (o.shape.payloads[payload]!.rounded ? roundRow : storeRow)(o, payload);

function using(o: OneSided, payload: number) {
  const { unit, rowUnits, partUnits } = partsOf(o.shape, payload, o.shape.dispatch.parts);
  return {
    ...{ ...o.u, ...o.phases.dispatch, ...destinations(o) },
    ...{ P: payload, UNIT: unit, ROW_UNITS: rowUnits, PART_UNITS: partUnits },
  };
}

/** The ranks that a token goes to by dispatch, each once, taken one after another. Each warp finds them by itself: no barrier. */
function destinations({ u, shape: { copied } }: OneSided) {
  // Ranks begin at different routes, so that with routes alike they do not all send to one peer at a time.
  const rotation = device(
    { params: {}, returns: 'u32', using: u },
    (g, _, { RANKS, K }) => (g.rank * K) / RANKS,
  );
  return {
    /** A bit for each: that of the lane whose route is the first to it, all rotated. */
    destinations: device(
      { params: { owner: 'u32' }, returns: registers('u32', 1), using: { ...u, rotation, COPIED: copied } },
      (g, { owner }, { RANKS, COPIED, firstsOf, rotation }) => {
        const firsts = firstsOf({ owner: COPIED && owner === g.rank ? g.u32(RANKS) : owner, ranks: RANKS });
        const by = rotation();
        const left = g.registers('u32', 1);
        left[0] = (firsts >>> by) | (firsts << (32 - by));
        return left;
      },
    ),
    /** The rank of the lowest bit of `left`, which it takes off. */
    nextOf: device(
      { params: { owner: 'u32', left: registers('u32', 1) }, returns: 'u32', using: { rotation } },
      (g, { owner, left }, { rotation }) => {
        const lane = (g.ffs(left[0]!) - 1 + rotation()) % 32;
        left[0]! &= left[0]! - 1;
        return g.warp.shuffle(owner, lane);
      },
    ),
  };
}

/** A team's threads load a stretch of the row, then store it to one rank after another. */
function storeRow(o: OneSided, payload: number) {
  const asked = using(o, payload);
  return device(
    { params: params(o), using: { ...asked, DEPTH: depth(asked.PART_UNITS, o.shape.dispatch) } },
    (g, { win, from, token, tokens, part, id }, u) => {
      const end = token < tokens ? g.min((part + 1) * u.PART_UNITS, g.u32(u.ROW_UNITS)) : 0;
      for (let base = part * u.PART_UNITS; base < end; base += u.team.threads() * u.DEPTH) {
        // The row is on its way before the first use of the ids: the two latencies overlap.
        const row = g.registers(u.UNIT, u.DEPTH);
        for (const d of g.unroll(u.DEPTH)) {
          const i = base + d * u.team.threads() + u.team.thread();
          if (i < end) row[d] = g.load(from.as(u.UNIT).at(token * u.ROW_UNITS + i), { cache: 'stream' });
        }
        const owner = u.ownerOf({ expert: id });
        const left = u.destinations({ owner });
        while (left[0] !== 0) {
          const to = u.nextOf({ owner, left });
          for (const d of g.unroll(u.DEPTH)) {
            const i = base + d * u.team.threads() + u.team.thread();
            if (i < end) g.store(win.at(to).payloads[u.P]!.at(g.rank / u.REPLICAS, token, i), row[d]!);
          }
        }
      }
    },
  );
}

/** Rows of bf16 that travel as e4m3 with scales. */
function roundRow(o: OneSided, payload: number) {
  return device(
    { params: params(o), using: { ...using(o, payload), roundVector: roundVector(o.shape, payload) } },
    (g, { win, from, token, tokens, part, id }, u) => {
      const end = token < tokens ? g.min((part + 1) * u.PART_UNITS, g.u32(u.ROW_UNITS)) : 0;
      for (let base = part * u.PART_UNITS; base < end; base += u.team.threads()) {
        const i = base + u.team.thread();
        const { vector, scales } = u.roundVector({ row: from.at(2 * token * u.ROW_UNITS), i, end });
        const owner = u.ownerOf({ expert: id });
        const left = u.destinations({ owner });
        while (left[0] !== 0) {
          const to = u.nextOf({ owner, left });
          if (i < end) {
            const there = win.at(to).payloads;
            g.store(there[u.P]!.at(g.rank / u.REPLICAS, token, i), vector);
            if (i % 8 === 0) g.store(there[u.P + 1]!.at(g.rank / u.REPLICAS, token, i / 8), scales);
          }
        }
      }
    },
  );
}
