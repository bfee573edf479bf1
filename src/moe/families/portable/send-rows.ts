/** One part of a token's rows on its way to the owners of its routes, once to each. */
import { device, peers, pointer } from '../../../lang/index.js';
import { isMade, sharing } from '../../layer/index.js';
import { masking } from '../common/masks.js';
import { expertOwner, firstsOf } from '../common/owners.js';
import { inputsOf, layerConstants } from '../common/params.js';
import { partsOf } from '../common/parts.js';
import { placeAt } from '../common/places.js';
import { roundPart } from './round-part.js';
import type { Transport } from './transport.js';
import type { PortableShape, PortableWindow } from './window.js';

export function sendRows(shape: PortableShape, window: PortableWindow, transport: Transport) {
  const rounded = shape.payloads.flatMap((payload, p) => (payload.rounded ? [p] : []));
  return device(
    {
      params: {
        win: peers(window),
        mask: 'v16',
        inputs: inputsOf(shape),
        token: 'u32',
        part: 'u32',
        told: pointer('u32'),
      },
      using: {
        ...layerConstants(shape),
        ownerOf: expertOwner(shape),
        firstsOf,
        placeAt: placeAt(shape),
        living: masking(shape, 'dispatch').living,
        ROUNDED: rounded,
        roundPart: rounded.map((p) => roundPart(shape, window, p, shape.dispatch.parts)),
        sendRow: shape.payloads.map((_, payload) => sendRow(shape, window, transport, payload)),
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

function sendRow(shape: PortableShape, window: PortableWindow, transport: Transport, payload: number) {
  const { unit, rowUnits, partUnits } = partsOf(shape, payload, shape.dispatch.parts);
  return device(
    {
      params: {
        win: peers(window),
        from: pointer('v16'),
        token: 'u32',
        peer: 'u32',
        part: 'u32',
        told: pointer('u32'),
      },
      using: {
        P: payload,
        MADE: isMade(shape, payload),
        REPLICAS: sharing(shape).replicas,
        UNIT: unit,
        ROW_UNITS: rowUnits,
        PART_UNITS: partUnits,
        put: transport.put(window, unit),
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
            ? win.at(g.rank).brought[u.P]!.at(token, start)
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
