/**
 * What the links carry at best: every rank stores to every peer, or loads from every peer, so many 16-byte vectors,
 * all ranks at once, with no ids, no flags and no rendezvous. Dispatch and combine are measured against these.
 */
import { field, kernel, layout, peers, pointer } from '../../../lang/index.js';

/** [source][vector]: each source has a place of its own, so the ranks never write to the same bytes. */
export function transferWindow(ranks: number, capacity: number) {
  return layout('transfer window', { rows: field('v16', ranks * capacity) });
}

export type TransferWindow = ReturnType<typeof transferWindow>;

/** Blocks and threads that saturate NVLink. For many bytes most launches do; this one is fast for few bytes too. */
export const transferLaunch = { blocks: 96, threads: 512 } as const;

/**
 * Stores. The vectors come from registers: what reading them from memory costs is dispatch's affair, not the links'.
 * A block's worth of vectors at a time goes to one peer: runs of 8 KiB cost less than a warp's 512 bytes to each peer in
 * turn.
 */
export function storeCeilingKernel(ranks: number, capacity: number, window: TransferWindow) {
  return kernel(
    {
      name: 'ceiling_stores',
      maxThreads: transferLaunch.threads,
      params: {
        win: peers(window),
        /** To each peer; at most the capacity. */
        vectors: 'u32',
      },
      using: { RANKS: ranks, CAPACITY: capacity },
    },
    (g, { win, vectors }, { RANKS, CAPACITY }) => {
      const runs = (vectors + g.blockDim.x - 1) / g.blockDim.x;
      for (let run = g.blockIdx.x; run < runs * (RANKS - 1); run += g.gridDim.x) {
        // Each rank begins with another peer: no link waits while another is full.
        const peer = (g.rank + 1 + (run % (RANKS - 1))) % RANKS;
        const i = (run / (RANKS - 1)) * g.blockDim.x + g.threadIdx.x;
        if (i < vectors) {
          // Not zeros, and not one value over and over.
          const value = g.pack('u32', [i, i * 2654435761, g.rank + i, i ^ 2863311530]);
          g.store(win.at(peer).rows.at(g.rank * CAPACITY + i), value);
        }
      }
    },
  );
}

/**
 * Loads. `sink` is [threads of the grid] u32: a loaded value must be used, or the compiler drops the load. Plain ones:
 * with L1::no_allocate loads from a peer reach less than half of that, since they go out sector by sector.
 */
export function loadCeilingKernel(ranks: number, capacity: number, window: TransferWindow) {
  return kernel(
    {
      name: 'ceiling_loads',
      maxThreads: transferLaunch.threads,
      params: { win: peers(window), vectors: 'u32', sink: pointer('u32') },
      using: { RANKS: ranks, CAPACITY: capacity },
    },
    (g, { win, vectors, sink }, { RANKS, CAPACITY }) => {
      const runs = (vectors + g.blockDim.x - 1) / g.blockDim.x;
      let seen = g.u32(0);
      for (let run = g.blockIdx.x; run < runs * (RANKS - 1); run += g.gridDim.x) {
        const peer = (g.rank + 1 + (run % (RANKS - 1))) % RANKS;
        const i = (run / (RANKS - 1)) * g.blockDim.x + g.threadIdx.x;
        if (i < vectors) {
          const row = g.load(win.at(peer).rows.at(g.rank * CAPACITY + i));
          seen ^= g.lane(row, 'u32', 0) ^ g.lane(row, 'u32', 3);
        }
      }
      g.store(sink.at(g.blockIdx.x * g.blockDim.x + g.threadIdx.x), seen);
    },
  );
}
