/** One part of a token's rows on its way to the owners of its routes, once to each. */
import { device, pointer } from '../../../lang/index.js';
import { isMade } from '../../layer/index.js';
import { inputsOf } from '../common/params.js';
import { partsOf } from '../common/parts.js';
import type { Portable } from './kit.js';
import { roundPart } from './round-part.js';

export function sendRows(kit: Portable) {
  const { shape } = kit;
  const rounded = shape.payloads.flatMap((payload, i) => (payload.rounded ? [i] : []));
  return device(
    {
      params: {
        ...{ win: kit.at.win, mask: 'v16', inputs: inputsOf(shape), token: 'u32', part: 'u32' },
        told: pointer('u32'),
      },
      using: {
        ...{ ...kit.u, living: kit.phases.dispatch.living, ROUNDED: rounded },
        roundPart: rounded.map((payload) => roundPart(kit, payload)),
        sendRow: shape.payloads.map((_, payload) => sendRow(kit, payload)),
      },
    },
    (g, { win, mask, inputs: { topkIds, placing, rows }, token, part, told }, u) => {
      let id = g.i32(-1);
      if (g.laneId < u.K) id = u.placeAt({ topkIds, placing, token, k: g.laneId });
      const owner = u.ownerOf({ expert: u.living({ mask, id }) });
      const firsts = u.firstsOf({ owner, ranks: u.RANKS });
      if (u.ROUNDED.length > 0 && firsts !== 0) {
        const mine = win.at(g.rank);
        for (const n of g.unroll(u.ROUNDED.length))
          u.roundPart[n]!({ mine, from: rows[u.ROUNDED[n]!]!, token, part });
        g.warp.barrier(); // the lanes send what others wrote
      }
      for (let other = g.u32(0); other < u.K; other += 1) {
        // Ranks begin with different routes, so that with routes alike they do not all send to one peer at a time.
        const k = (other + (g.rank * u.K) / u.RANKS) % u.K;
        const peer = g.warp.shuffle(owner, k);
        if (((firsts >>> k) & 1) === 1) {
          for (const p of g.unroll(u.PAYLOADS))
            u.sendRow[p]!({ win, from: rows[p]!, token, peer, part, told });
        }
      }
    },
  );
}

function sendRow(p: Portable, payload: number) {
  const { shape } = p;
  const { unit, rowUnits, partUnits } = partsOf(shape, payload, shape.dispatch.parts);
  return device(
    {
      params: {
        ...{ win: p.at.win, from: pointer('v16'), token: 'u32', peer: 'u32', part: 'u32' },
        told: pointer('u32'),
      },
      using: {
        ...{ ...p.u, P: payload, MADE: isMade(shape, payload), put: p.put(unit) },
        ...{ UNIT: unit, ROW_UNITS: rowUnits, PART_UNITS: partUnits },
      },
    },
    (g, { win, from, token, peer, part, told }, u) => {
      // A row of few units has fewer parts.
      const start = part * u.PART_UNITS;
      if (start < u.ROW_UNITS) {
        const there = win.at(peer);
        u.put({
          mine: win.at(g.rank),
          peer,
          to: there.payloads[u.P]!.at(g.rank / u.REPLICAS, token, start),
          from: u.MADE
            ? win.at(g.rank).roundedRows[u.P]!.at(token, start)
            : from.as(u.UNIT).at(token * u.ROW_UNITS + start),
          count: g.min(u.ROW_UNITS - start, g.u32(u.PART_UNITS)),
          signal: there.arrived.at(g.rank),
          value: 1,
          adds: true,
        });
        if (g.laneId === 0) g.atomicAdd(told.at(peer), 1, { order: 'relaxed', scope: 'cta' });
      }
    },
  );
}
