/**
 * The send of a dispatch: messages for the other nodes, which the proxy takes as they become ready, then this node's own
 * ranks. It waits for nobody.
 */
import { device, kernel } from '../../../lang/index.js';
import { sentPayloads } from '../../layer/index.js';
import { dispatchParams, inputsOf } from '../common/params.js';
import { partsOf } from '../common/parts.js';
import { notePlaces } from '../common/places.js';
import { storeRounded, storeRows, tellRoutes } from './deliver.js';
import type { Hybrid } from './kit.js';
import { packChunk } from './pack-chunk.js';
import { mostPackers } from './shape.js';

export function dispatchSendKernel(h: Hybrid) {
  const { shape, window } = h;
  return kernel(
    {
      name: 'hybrid_dispatch_send',
      maxThreads: shape.dispatch.threads,
      /** `node`: this rank's. */
      params: { ...dispatchParams(window, shape), wire: h.at.wire, node: 'u32' },
      using: {
        ...h.u,
        ...h.phases.dispatch,
        ...{ PACKERS: mostPackers.dispatch, deliverToken: deliverToken(h), packChunk: packChunk(h) },
        notePlaces: notePlaces(shape),
      },
    },
    (g, { win, wire, topkIds, topkWeights, rows, tokens, placing, layer, node }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const inputs = { topkIds, topkWeights, rows, tokens, placing };
      const epoch = g.load(mine.finished.at(0)) + 1;
      if (g.blockIdx.x === 0 && g.threadIdx.x === 0) g.store(mine.begun.at(0), epoch);
      u.noteLayer({ mine, layer, epoch });
      const mask = u.maskIn({ masked: mine.masked });
      if (u.thisRankIsOut({ mask, rank: node * u.LOCAL + g.rank, failure: mine.failure, epoch })) return;
      // A rank that has given up sends nothing: peers may still be reading its message of the last round.
      if (g.load(mine.failure.at(0)) !== 0) return;

      // The message with the longest way goes first.
      const member = g.rank % u.REPLICAS;
      const share = (tokens + (u.REPLICAS - 1 - member)) / u.REPLICAS;
      const chunks = g.max((share + u.CHUNK - 1) / u.CHUNK, g.u32(1));
      const messages = chunks * u.HOPS;
      const packers = g.min(g.min(messages, g.u32(u.PACKERS)), g.gridDim.x);
      if (g.blockIdx.x < packers) {
        for (let message = g.blockIdx.x; message < messages; message += packers) {
          const hop = message % u.HOPS;
          const chunk = message / u.HOPS;
          u.packChunk({ mine, wire, mask, inputs, share, node, hop, chunk, epoch });
        }
      }
      // The packers get theirs last.
      const first = (g.blockIdx.x + g.gridDim.x - packers) % g.gridDim.x;
      const out = u.outOfNode({ mask, node });
      for (let turn = first; turn < u.TURNS; turn += g.gridDim.x) {
        const token = turn * u.REPLICAS + member;
        if (u.MASKS) {
          // Sources that are left out have no routes here. Only such a source may write there as well, should it still run.
          for (let i = g.threadIdx.x; i < u.RANKS * u.K; i += g.blockDim.x) {
            const isOut = u.isOut({ mask, rank: i / u.K });
            if (isOut) {
              g.store(mine.experts.at(i / u.K, token, i % u.K), -1);
              if (u.WEIGHTS) g.store(mine.weights.at(i / u.K, token, i % u.K), 0);
            }
          }
        }
        u.deliverToken({ win, mask, out, inputs, node, token });
        if (u.PLACED && g.warpId === 0) u.notePlaces({ topkIds, placing, turn, tokens });
      }
    },
  );
}

/** One token of this rank's share, whether it was brought or not, to the ranks of its own node; a block. */
function deliverToken(h: Hybrid) {
  const { shape } = h;
  const sent = sentPayloads(shape);
  const isRounded = (p: number): boolean => shape.payloads[p]!.rounded !== undefined;
  return device(
    {
      /** `out`: the ranks of this node that are left out. */
      params: { win: h.at.win, mask: 'v16', out: 'u32', inputs: inputsOf(shape), node: 'u32', token: 'u32' },
      using: {
        ...h.u,
        SENT: sent,
        // Rows that are rounded are twice as long before.
        ROW: sent.map((p) => (isRounded(p) ? 2 : 1) * partsOf(shape, p, 1).rowUnits),
        storeRows: sent.map((p) => (isRounded(p) ? storeRounded : storeRows)(h, p)),
        tellRoutes: tellRoutes(h),
      },
    },
    (g, { win, mask, out, inputs, node, token }, u) => {
      const { topkIds, topkWeights, placing, rows, tokens } = inputs;
      let id = g.i32(-1);
      let weight = g.f32(0);
      if (token < tokens && g.laneId < u.K) {
        id = u.livingPlaceAt({ mask, topkIds, placing, token, k: g.laneId });
        if (u.WEIGHTS) weight = g.load(topkWeights[0]!.at(token * u.K + g.laneId));
      }
      const source = (node * u.LOCAL + g.rank) / u.REPLICAS;
      const owner = u.ownerOf({ expert: id }) - node * u.LOCAL;
      const step = g.blockDim.x / 32;
      const wanted = u.tellRoutes({ win, out, source, token, id, weight, owner, first: g.warpId, step });

      const list = g.shared('u32', 1);
      const wants = g.shared('u32', 1);
      g.barrier(); // all have read what was listed before
      if (g.threadIdx.x === 0) {
        g.store(list, token);
        g.store(wants, wanted);
      }
      g.barrier();
      const count = g.u32(wanted === 0 ? 0 : 1);
      for (const n of g.unroll(u.SENT.length)) {
        const [from, stride] = [rows[u.SENT[n]!]!, u.ROW[n]!];
        u.storeRows[n]!({ win, from, first: token, stride, source, tokens: list, wants, count });
      }
    },
  );
}
