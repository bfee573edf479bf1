/** Tokens on the last part of their way: into the slots of the node's ranks. Both halves of a dispatch end here. */
import { constant, device, pointer } from '../../../lang/index.js';
import { numbers } from '../common/params.js';
import { partsOf } from '../common/parts.js';
import { roundVector } from '../common/quantise.js';
import type { Hybrid } from './kit.js';
import { inFlight } from './pack-chunk.js';

/**
 * A token's ids and weights go to every rank of the node, from `first` on to every `step`-th: what is not its own reads -1
 * there. A warp's; lane k holds route k, and its owner in the node. Returns a bit for each rank that wants the row.
 */
export function tellRoutes({ at: { win }, u }: Hybrid) {
  return device(
    {
      params: {
        win,
        /** The ranks that are left out, a bit each: nobody stores to them. */
        out: 'u32',
        ...numbers('source', 'token'),
        id: 'i32',
        weight: 'f32',
        ...numbers('owner', 'first', 'step'),
      },
      returns: 'u32',
      using: u,
    },
    (g, { win, out, source, token, id, weight, owner, first, step }, u) => {
      for (let to = first; to < u.LOCAL; to += step) {
        const there = win.at(to);
        if (g.laneId < u.K && ((out >>> to) & 1) === 0) {
          g.store(there.experts.at(source, token, g.laneId), owner === to ? id : -1);
          if (u.WEIGHTS) g.store(there.weights.at(source, token, g.laneId), owner === to ? weight : 0);
        }
      }
      let wants = g.u32(0);
      for (let to = g.u32(0); to < u.LOCAL; to += 1) {
        if (g.warp.any(owner === to)) wants |= g.u32(1) << to;
      }
      return wants & ~out;
    },
  );
}

const storeParams = ({ at: { win } }: Hybrid) => ({
  ...{ win, from: pointer('v16'), ...numbers('first'), stride: constant(), ...numbers('source') },
  ...{ tokens: pointer('u32'), wants: pointer('u32'), ...numbers('count') },
});

/**
 * One payload's rows go to the ranks that want them; a block. Row i of `from`, from `first` on, is that of token
 * `tokens[i]`, and goes to the ranks in `wants[i]`. `stride`: from row to row, in units of the payload.
 */
export function storeRows(h: Hybrid, payload: number) {
  const { unit, rowUnits } = partsOf(h.shape, payload, 1);
  return device(
    { params: storeParams(h), using: { P: payload, UNIT: unit, ROW: rowUnits, IN_FLIGHT: inFlight } },
    (g, { win, from, first, stride, source, tokens, wants, count }, u) => {
      for (let base = g.threadIdx.x; base < count * u.ROW; base += g.blockDim.x * u.IN_FLIGHT) {
        const some = g.registers(u.UNIT, u.IN_FLIGHT);
        for (const d of g.unroll(u.IN_FLIGHT)) {
          const i = base + d * g.blockDim.x;
          if (i < count * u.ROW) {
            const row = from.as(u.UNIT).at((first + i / u.ROW) * stride);
            some[d] = g.load(row.at(i % u.ROW), { cache: 'stream' });
          }
        }
        for (const d of g.unroll(u.IN_FLIGHT)) {
          const i = base + d * g.blockDim.x;
          if (i < count * u.ROW) {
            const token = g.load(tokens.at(i / u.ROW));
            let left = g.load(wants.at(i / u.ROW));
            while (left !== 0) {
              g.store(win.at(g.ffs(left) - 1).payloads[u.P]!.at(source, token, i % u.ROW), some[d]!);
              left &= left - 1;
            }
          }
        }
      }
    },
  );
}

/** A payload's rows of bf16 go, rounded and with their scales, to the ranks that want them; a block. */
export function storeRounded(h: Hybrid, payload: number) {
  const ROW = partsOf(h.shape, payload, 1).rowUnits;
  return device(
    { params: storeParams(h), using: { P: payload, ROW, roundVector: roundVector(h.shape, payload) } },
    (g, { win, from, first, stride, source, tokens, wants, count }, u) => {
      // Whole warps take part.
      for (let base = g.u32(0); base < count * u.ROW; base += g.blockDim.x) {
        const [place, i] = [(base + g.threadIdx.x) / u.ROW, (base + g.threadIdx.x) % u.ROW];
        const end = place < count ? u.ROW : 0;
        const { vector, scales } = u.roundVector({ row: from.at((first + place) * stride), i, end });
        if (place < count) {
          const token = g.load(tokens.at(place));
          let left = g.load(wants.at(place));
          while (left !== 0) {
            const there = win.at(g.ffs(left) - 1).payloads;
            g.store(there[u.P]!.at(source, token, i), vector);
            if (i % 8 === 0) g.store(there[u.P + 1]!.at(source, token, i / 8), scales);
            left &= left - 1;
          }
        }
      }
    },
  );
}
