/**
 * Dispatch: pushes each token from its source straight into the windows of the ranks that own its experts.
 *
 * Slot (source, token) of every window belongs to that token, so there is nothing to count, reset or agree on, and
 * the same inputs always land in the same places. A row travels once to a rank, however many of its experts live
 * there. Expert ids go to every rank for every slot: -1 says 'not yours' and 'empty' alike.
 *
 * Rows are stored, or go by bulk copies (bulk.ts).
 *
 * One launch, one rendezvous, at the tail: when the kernel ends, everything sent to this rank has arrived.
 */
import { kernel, list, peers, pointer } from '../../lang/index.js';
import type { Payload } from '../../layer/index.js';
import { operations } from '../common/failure.js';
import { unitBytes, widestUnit } from '../common/units.js';
import { fillStage, staging } from './bulk.js';
import { expertOwner, protocol } from './protocol.js';
import { depth, localExperts, type OneSidedShape, type OneSidedWindow } from './window.js';

const unitOf = ({ rowBytes }: Payload) => widestUnit(rowBytes);

export function dispatchKernel(shape: OneSidedShape, window: OneSidedWindow) {
  const partUnits = (p: Payload) => Math.ceil(p.rowBytes / unitBytes[unitOf(p)] / shape.dispatch.parts);
  const { warps, chunks, stage } = staging(shape);
  const { arrive, awaitPeers, awaitSlots, patience } = protocol(
    window,
    shape,
    'dispatched',
    operations.dispatch,
  );
  return kernel(
    {
      name: 'one_sided_dispatch',
      maxThreads: shape.dispatch.threads,
      params: {
        win: peers(window),
        /** [tokens][K] */
        topkIds: pointer('i32'),
        topkWeights: pointer('f32'),
        /** One [tokens][row] array a payload. */
        rows: list(pointer('v16'), shape.payloads.length),
        tokens: 'u32',
        /** Microseconds to wait for a peer. */
        limit: 'u32',
      },
      using: {
        RANKS: shape.ranks,
        K: shape.topK,
        MAX_TOKENS: shape.maxTokens,
        SLOTS: shape.ranks * shape.maxTokens,
        PARTS: shape.dispatch.parts,
        WEIGHTS: shape.weights,
        COUNTS: shape.counts,
        LOCAL_EXPERTS: localExperts(shape),
        EXTRA: shape.experts % shape.ranks,
        BASE: Math.floor(shape.experts / shape.ranks),
        PAYLOADS: shape.payloads.length,
        UNIT: shape.payloads.map(unitOf),
        ROW_UNITS: shape.payloads.map((p) => p.rowBytes / unitBytes[unitOf(p)]),
        PART_UNITS: shape.payloads.map(partUnits),
        ROW_BYTES: shape.payloads.map((p) => p.rowBytes),
        PART_BYTES: shape.payloads.map((p) => partUnits(p) * unitBytes[unitOf(p)]),
        /** Bytes that one prefetch brings. */
        LINE: 128,
        // Independent loads in flight for each thread hide the latency of device memory.
        DEPTH: shape.payloads.map((p) => depth(partUnits(p), shape.dispatch)),
        WARPS: warps,
        BULK: stage > 0,
        /** Vectors that go through a stage at a time; 0 for a payload whose rows are stored. */
        CHUNK: chunks,
        // Where nothing goes in bulk nobody uses it, and it vanishes.
        STAGE: Math.max(1, stage),
        fillStage,
        ownerOf: expertOwner(shape),
        arrive,
        awaitPeers,
        awaitSlots,
        patience,
        PUSH: shape.combine.way === 'push',
      },
    },
    (g, { win, topkIds, topkWeights, rows, tokens, limit }, u) => {
      const mine = win.at(g.rank);
      // This launch may begin while the kernel before it still runs, and reads what that one left only behind
      // `awaitPrevious`. Until then it asks for its first rows to be brought near, which reads nothing.
      const firstToken = g.blockIdx.x / u.PARTS;
      if (firstToken < tokens) {
        for (const p of g.unroll(u.PAYLOADS)) {
          const row = rows[p]!.as('u8').at(firstToken * u.ROW_BYTES[p]!);
          const start = (g.blockIdx.x % u.PARTS) * u.PART_BYTES[p]!;
          const end = g.min(start + u.PART_BYTES[p]!, g.u32(u.ROW_BYTES[p]!));
          for (let at = start + g.threadIdx.x * u.LINE; at < end; at += g.blockDim.x * u.LINE)
            g.prefetch(row.at(at));
        }
        if (g.threadIdx.x === 0) {
          g.prefetch(topkIds.at(firstToken * u.K));
          if (u.WEIGHTS) g.prefetch(topkWeights.at(firstToken * u.K));
        }
      }
      // A pushing combine lies between two dispatches and has awaited the last one, so its count of rounds may be read
      // at once. (Not by way of L1, where something older might linger.)
      let epoch = g.u32(1);
      if (u.PUSH) epoch += g.load(mine.dispatches.at(g.blockIdx.x), { order: 'relaxed', scope: 'gpu' });
      g.awaitPrevious();
      g.releaseNext();
      if (!u.PUSH) epoch += g.load(mine.dispatches.at(g.blockIdx.x));
      let patience = u.patience({ win, limit });

      // The peers' experts may still read the last round: the first store waits for them, what comes before it does not.
      // (A pulling combine has waited for the peers already.)
      let mayStore = !u.PUSH;

      // Bulk copies: the warps take turns, each with its own stage and the mbarrier that says it is filled. The n-th
      // chunk that the block sends is the turn of warp n % WARPS, and of that warp's first lane alone.
      const stages = g.shared('v16', u.WARPS * u.STAGE);
      const filled = g.shared('u64', u.WARPS);
      const stage = stages.at(g.warpId * u.STAGE);
      let chunk = g.u32(0);
      if (u.BULK) {
        if (g.laneId === 0) g.mbarrier.init(filled.at(g.warpId), 1);
      }

      // The work is MAX_TOKENS · PARTS pieces of rows; block b takes every gridDim-th.
      for (let piece = g.blockIdx.x; piece < u.MAX_TOKENS * u.PARTS; piece += g.gridDim.x) {
        const token = piece / u.PARTS;
        const part = piece % u.PARTS;
        const slot = g.rank * u.MAX_TOKENS + token;

        // Lane k of every warp holds route k. Tokens that were not brought have no routes.
        let id = g.i32(-1);
        let weight = g.f32(0);
        if (token < tokens && g.laneId < u.K) {
          id = g.load(topkIds.at(token * u.K + g.laneId));
          if (u.WEIGHTS) weight = g.load(topkWeights.at(token * u.K + g.laneId));
        }

        for (const p of g.unroll(u.PAYLOADS)) {
          const from = rows[p]!.as(u.UNIT[p]!).at(token * u.ROW_UNITS[p]!);
          const end = token < tokens ? g.min((part + 1) * u.PART_UNITS[p]!, g.u32(u.ROW_UNITS[p]!)) : 0;
          const bulk = u.CHUNK[p]! > 0;
          for (
            let base = part * u.PART_UNITS[p]!;
            base < end;
            base += bulk ? u.CHUNK[p]! : g.blockDim.x * u.DEPTH[p]!
          ) {
            const sends = bulk && chunk % u.WARPS === g.warpId && g.laneId === 0;
            const bytes = 16 * g.min(end - base, g.u32(u.CHUNK[p]!));
            // The row is on its way before the first use of the ids: the two latencies overlap.
            const row = g.registers(u.UNIT[p]!, u.DEPTH[p]!);
            if (bulk) {
              if (sends) {
                u.fillStage({ stage, from: from.as('v16').at(base), bytes, filled: filled.at(g.warpId) });
              }
            } else {
              for (const d of g.unroll(u.DEPTH[p]!)) {
                const i = base + d * g.blockDim.x + g.threadIdx.x;
                if (i < end) row[d] = g.load(from.at(i), { cache: 'stream' });
              }
            }
            if (!mayStore) {
              if (!u.awaitSlots({ win, epoch: epoch - 1, limit: patience })) patience = g.u32(0);
              mayStore = true;
            }
            // Each warp finds the destinations by itself, so no block barrier is needed: the first lane of those
            // whose routes have the same owner stands for that rank.
            const owner = u.ownerOf({ expert: id });
            const same = g.warp.match(owner);
            const stands = g.warp.ballot(owner < u.RANKS && g.ffs(same) - 1 === g.laneId);
            // Ranks begin at different routes, so that with routes alike they do not all send to one peer at a time (5 %
            // of a round at 128 balanced tokens; nothing either way where routes are random).
            const turn = (g.rank * u.K) / u.RANKS;
            let left = (stands >>> turn) | (stands << (32 - turn));
            if (bulk) {
              if (sends) g.mbarrier.await(filled.at(g.warpId), (chunk / u.WARPS) % 2);
            }
            while (left !== 0) {
              const to = g.warp.shuffle(owner, (g.ffs(left) - 1 + turn) % 32);
              left &= left - 1;
              const there = win.at(to).payloads[p]!.at(slot * u.ROW_UNITS[p]!);
              if (bulk) {
                if (sends) g.bulk.store(there.as('v16').at(base), stage, bytes);
              } else {
                for (const d of g.unroll(u.DEPTH[p]!)) {
                  const i = base + d * g.blockDim.x + g.threadIdx.x;
                  if (i < end) g.store(there.at(i), row[d]!);
                }
              }
            }
            if (bulk) {
              if (sends) g.bulk.commit();
              chunk += 1;
            }
          }
        }

        // Ids and weights go to every rank, a warp for each: what is not its own reads -1 there.
        if (part === 0) {
          if (!mayStore) {
            if (!u.awaitSlots({ win, epoch: epoch - 1, limit: patience })) patience = g.u32(0);
            mayStore = true;
          }
          const owner = u.ownerOf({ expert: id });
          for (let to = g.warpId; to < u.RANKS; to += g.blockDim.x / 32) {
            const there = win.at(to);
            if (u.PUSH) {
              const any = g.warp.any(owner === to);
              if (g.laneId === 0) g.store(there.present.at((epoch % 2) * u.SLOTS + slot), g.u32(any));
            }
            if (g.laneId < u.K) {
              g.store(there.experts.at(slot * u.K + g.laneId), owner === to ? id : -1);
              if (u.WEIGHTS) g.store(there.weights.at(slot * u.K + g.laneId), owner === to ? weight : 0);
            }
          }
        }
      }
      if (u.BULK) {
        if (g.laneId === 0) g.bulk.wait(0); // bulk.ts says why `arrive` then vouches for what was copied
      }
      u.arrive({ win, epoch });
      u.awaitPeers({ win, epoch, limit: patience });

      if (u.COUNTS) {
        // The same pieces, seen from here: slots of every source whose ids have just arrived. Combine zeroed the
        // counts behind the experts that read them.
        const first = g.rank * u.BASE + g.min(g.rank, g.u32(u.EXTRA));
        for (let piece = g.blockIdx.x; piece < u.MAX_TOKENS * u.PARTS; piece += g.gridDim.x) {
          if (piece % u.PARTS === 0) {
            for (let i = g.threadIdx.x; i < u.RANKS * u.K; i += g.blockDim.x) {
              const slot = (i / u.K) * u.MAX_TOKENS + piece / u.PARTS;
              const id = g.load(mine.experts.at(slot * u.K + (i % u.K)));
              if (id >= 0)
                g.atomicAdd(mine.counts.at(g.u32(id) - first), 1, { order: 'relaxed', scope: 'gpu' });
            }
          }
        }
      }
      if (g.threadIdx.x === 0) g.store(mine.dispatches.at(g.blockIdx.x), epoch);
    },
  );
}
