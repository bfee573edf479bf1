/** The message of dispatch that brings a chunk of tokens to one node; a block packs it. */
import { device, pointer } from '../../../lang/index.js';
import { sentPayloads } from '../../layer/index.js';
import { inputsOf, numbers } from '../common/params.js';
import { partsOf, unitBytes } from '../common/parts.js';
import { roundVector } from '../common/quantise.js';
import type { Hybrid } from './kit.js';
import { dispatchMessage } from './messages.js';

/** The values that a thread loads before it stores the first. */
export const inFlight = 4;

export function packChunk(h: Hybrid) {
  const { shape } = h;
  const message = dispatchMessage(shape);
  const sent = sentPayloads(shape);
  return device(
    {
      params: {
        ...{ mine: h.at.mine, wire: h.at.wire, mask: 'v16', inputs: inputsOf(shape) },
        /** The rank's tokens, one a turn. */
        share: 'u32',
        ...numbers('node', 'hop', 'chunk', 'epoch'),
      },
      using: {
        ...h.u,
        ...{ SENT: sent, IDS: message.ids, WEIGHTS_AT: message.weights, ROWS: message.rows },
        PAYLOADS_AT: message.payloads,
        packRows: sent.map((p) => (shape.payloads[p]!.rounded ? packRounded : packRows)(h, p)),
      },
    },
    (g, { mine, wire, mask, inputs, share, node, hop, chunk, epoch }, u) => {
      const { topkIds, topkWeights, placing, rows } = inputs;
      const out = wire.at(0).dispatchOut;
      const first = chunk * u.CHUNK;
      const here = g.min(share - first, g.u32(u.CHUNK)); // a chunk has tokens, or is the first

      // Every warp finds out by itself which tokens go there; the first lists them for all. A lane looks at a token: which ranks of that
      // node own experts of it.
      const there = (node + 1 + hop) % u.NODES;
      const member = g.rank % u.REPLICAS;
      let owners = g.u32(0);
      if (g.laneId < here) {
        const token = (first + g.laneId) * u.REPLICAS + member;
        for (let k = g.u32(0); k < u.K; k += 1) {
          const owner = u.ownerOf({ expert: u.livingPlaceAt({ mask, topkIds, placing, token, k }) });
          if (owner / u.LOCAL === there) owners |= g.u32(1) << (owner % u.LOCAL);
        }
      }
      const goes = owners !== 0;
      const going = g.warp.ballot(goes);
      const packed = g.shared('u32', u.CHUNK);
      if (g.warpId === 0 && goes) {
        const place = g.popc(going & ((g.u32(1) << g.laneId) - 1));
        g.store(packed.at(place), (first + g.laneId) * u.REPLICAS + member);
      }
      g.barrier();

      const ids = out.at(hop, chunk, u.IDS).as('i32');
      const weights = out.at(hop, chunk, u.WEIGHTS_AT).as('f32');
      for (let i = g.threadIdx.x; i < here * u.K; i += g.blockDim.x) {
        const token = (first + i / u.K) * u.REPLICAS + member;
        g.store(ids.at(i), u.livingPlaceAt({ mask, topkIds, placing, token, k: i % u.K }));
        if (u.WEIGHTS) g.store(weights.at(i), g.load(topkWeights[0]!.at(token * u.K + (i % u.K))));
      }
      for (const n of g.unroll(u.SENT.length)) {
        const to = out.at(hop, chunk, u.ROWS + u.PAYLOADS_AT[u.SENT[n]!]!);
        u.packRows[n]!({ from: rows[u.SENT[n]!]!, to, packed, count: g.popc(going) });
      }
      g.barrier(); // the release below is for the stores of all threads
      if (g.threadIdx.x === 0) {
        g.store(out.at(hop, chunk, 0), g.pack('u32', [epoch, share, going, g.popc(going)]));
        g.store(wire.at(0).dispatchRows.at(hop, chunk), g.popc(going));
        g.store(mine.sent.at(hop, chunk), going);
        const ready = wire.at(0).dispatchReady.at(hop, chunk);
        g.store(ready, epoch, { order: 'release', scope: 'sys' });
      }
    },
  );
}

const packParams = {
  from: pointer('v16'),
  to: pointer('v16'),
  packed: pointer('u32'),
  count: 'u32',
} as const;

/** One payload's rows of the tokens that `packed` lists, one behind the other. */
function packRows({ shape }: Hybrid, payload: number) {
  const { unit, rowUnits } = partsOf(shape, payload, 1);
  return device(
    {
      params: packParams,
      using: {
        ...{ UNIT: unit, ROW: rowUnits, STRIDE: (dispatchMessage(shape).row * 16) / unitBytes[unit] },
        IN_FLIGHT: inFlight,
      },
    },
    (g, { from, to, packed, count }, u) => {
      for (let base = g.threadIdx.x; base < count * u.ROW; base += g.blockDim.x * u.IN_FLIGHT) {
        const some = g.registers(u.UNIT, u.IN_FLIGHT);
        for (const d of g.unroll(u.IN_FLIGHT)) {
          const i = base + d * g.blockDim.x;
          if (i < count * u.ROW) {
            const row = from.as(u.UNIT).at(g.load(packed.at(i / u.ROW)) * u.ROW);
            some[d] = g.load(row.at(i % u.ROW), { cache: 'stream' });
          }
        }
        for (const d of g.unroll(u.IN_FLIGHT)) {
          const i = base + d * g.blockDim.x;
          if (i < count * u.ROW) g.store(to.as(u.UNIT).at((i / u.ROW) * u.STRIDE + (i % u.ROW)), some[d]!);
        }
      }
    },
  );
}

/** Packs a payload's rows of bf16, rounded; their scales are the payload behind it. */
function packRounded({ shape }: Hybrid, payload: number) {
  return device(
    {
      params: packParams,
      using: {
        ...{ ROW: partsOf(shape, payload, 1).rowUnits, STRIDE: dispatchMessage(shape).row },
        roundVector: roundVector(shape, payload),
      },
    },
    (g, { from, to, packed, count }, u) => {
      // Whole warps take part. A row is whole words of scales, so 8 lanes that share one have the same row.
      for (let base = g.u32(0); base < count * u.ROW; base += g.blockDim.x) {
        const [place, i] = [(base + g.threadIdx.x) / u.ROW, (base + g.threadIdx.x) % u.ROW];
        let token = g.u32(0);
        if (place < count) token = g.load(packed.at(place));
        const end = place < count ? u.ROW : 0;
        const { vector, scales } = u.roundVector({ row: from.at(2 * token * u.ROW), i, end });
        if (place < count) {
          const row = to.at(place * u.STRIDE);
          g.store(row.at(i), vector);
          const words = row.at(u.ROW).as('u32');
          if (i % 8 === 0) g.store(words.at(i / 8), scales);
        }
      }
    },
  );
}
