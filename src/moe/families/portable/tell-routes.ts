/**
 * A chunk of a rank's tokens on its way to one peer: their ids, and on request weights, for the routes that are its. For a peer that is
 * left out this rank writes what that one would have sent here, had it no routes: its slots read -1.
 */
import { device, pointer } from '../../../lang/index.js';
import { inputsOf } from '../common/params.js';
import { unitBytes, widestUnit } from '../common/parts.js';
import type { Portable } from './kit.js';
import { chunkTokens, messagesOf } from './messages.js';

export function tellRoutes(p: Portable) {
  return device(
    {
      params: {
        ...{ win: p.at.win, mask: 'v16', inputs: inputsOf(p.shape), peer: 'u32', chunk: 'u32' },
        told: pointer('u32'),
      },
      using: using(p),
    },
    (g, { win, mask, inputs, peer, chunk, told }, u) => {
      const { topkIds, topkWeights, placing, tokens } = inputs;
      const mine = win.at(g.rank);
      const first = chunk * u.CHUNK;
      const slots = g.min(u.MAX_TOKENS - first, g.u32(u.CHUNK));
      // A lane for each token. Tokens that the peer does not own and tokens that were not brought read -1 there.
      const token = first + g.laneId;
      if (u.isOut({ mask, rank: peer })) {
        // It has no routes here. Only that peer may write there as well, should it still run.
        if (g.laneId < slots) {
          for (const k of g.unroll(u.K)) {
            g.store(mine.experts.at(peer, token, k), -1);
            if (u.WEIGHTS) g.store(mine.weights.at(peer, token, k), 0);
          }
        }
        return;
      }
      // All routes of a token are on their way before the first is told.
      const ids = g.registers('i32', u.K, -1);
      const weights = g.registers('f32', u.WEIGHTS ? u.K : 1);
      if (g.laneId < slots && token < tokens) {
        for (const k of g.unroll(u.K)) {
          ids[k] = u.placeAt({ topkIds, placing, token, k: g.u32(k) });
          if (u.WEIGHTS) weights[k] = g.load(topkWeights[0]!.at(token * u.K + k));
        }
      }
      let goes = false;
      if (g.laneId < slots) {
        for (const k of g.unroll(u.K)) {
          const here = u.ownerOf({ expert: ids[k]! }) === peer;
          g.store(mine.ids.at(peer, token, k), g.select(here, ids[k]!, g.i32(-1)));
          if (u.WEIGHTS) g.store(mine.weightsOut.at(peer, token, k), g.select(here, weights[k]!, g.f32(0)));
          if (here) goes = true;
        }
      }
      // Of this rank's share.
      const own = g.laneId < slots && token % u.REPLICAS === g.rank % u.REPLICAS;
      const staying = g.popc(g.warp.ballot(own && !goes));
      g.warp.barrier(); // the lanes send what others wrote

      const there = win.at(peer);
      const signal = there.arrived.at(g.rank);
      if (chunk % u.REPLICAS !== g.rank % u.REPLICAS) {
        const value = u.OF_CHUNK + staying * u.MESSAGES;
        if (g.laneId === 0) u.signalBy({ mine, peer, signal, value, adds: true });
        return;
      }
      const group = g.rank / u.REPLICAS;
      const count = (slots * u.K) / u.WORDS;
      if (u.WEIGHTS) {
        const from = mine.weightsOut.at(peer, first, 0).as(u.UNIT);
        const to = there.weights.at(group, first, 0).as(u.UNIT);
        u.put({ mine, peer, to, from, count, signal, value: 1, adds: true });
      }
      const from = mine.ids.at(peer, first, 0).as(u.UNIT);
      const to = there.experts.at(group, first, 0).as(u.UNIT);
      u.put({ mine, peer, to, from, count, signal, value: 1 + staying * u.MESSAGES, adds: true });
      const value = u.OF_CHUNK + staying * u.MESSAGES;
      if (g.laneId === 0) g.atomicAdd(told.at(peer), value, { order: 'relaxed', scope: 'cta' });
    },
  );
}

function using(p: Portable) {
  const { maxTokens, topK, weights } = p.shape;
  // Chunks begin at multiples of 128 bytes behind a source's slots.
  const unit = widestUnit(maxTokens * topK * 4);
  return {
    ...{ ...p.u, isOut: p.phases.dispatch.isOut, CHUNK: chunkTokens, OF_CHUNK: weights ? 2 : 1 },
    ...{ UNIT: unit, WORDS: unitBytes[unit] / 4, MESSAGES: messagesOf(p.shape).ofToken, put: p.put(unit) },
  };
}
