/**
 * What the links carry at best: every rank stores to every peer, or loads from every peer, so many 16-byte vectors,
 * all ranks at once, with no ids, no flags and no rendezvous. Dispatch and combine are measured against these.
 */
import { field, kernel, layout, peers, pointer } from '../../lang/index.js';

/** [source][vector]: each source has a place of its own, so the ranks never write to the same bytes. */
export function transferWindow(ranks: number, capacity: number) {
  return layout('transfer window', { rows: field('v16', ranks * capacity) });
}

export type TransferWindow = ReturnType<typeof transferWindow>;

/** Blocks and threads that saturate NVLink (96 blocks of 512 do on an H200). */
export const transferLaunch = { blocks: 132, threads: 512 } as const;

/**
 * Stores. The vectors come from registers: what reading them from memory costs is dispatch's affair, not the links'.
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
      const step = g.gridDim.x * g.blockDim.x;
      for (let i = g.blockIdx.x * g.blockDim.x + g.threadIdx.x; i < vectors; i += step) {
        // Not zeros, and not one value over and over.
        const value = g.pack('u32', [i, i * 2654435761, g.rank + i, i ^ 2863311530]);
        // All peers in turn, and each rank begins with another one: no link waits while another is full.
        for (const other of g.unroll(RANKS - 1)) {
          const peer = (g.rank + 1 + other) % RANKS;
          g.store(win.at(peer).rows.at(g.rank * CAPACITY + i), value);
        }
      }
    },
  );
}

/** Loads. `sink` is [threads of the grid] u32: a loaded value must be used, or the compiler drops the load. */
export function loadCeilingKernel(ranks: number, capacity: number, window: TransferWindow) {
  return kernel(
    {
      name: 'ceiling_loads',
      maxThreads: transferLaunch.threads,
      params: { win: peers(window), vectors: 'u32', sink: pointer('u32') },
      using: { RANKS: ranks, CAPACITY: capacity },
    },
    (g, { win, vectors, sink }, { RANKS, CAPACITY }) => {
      const step = g.gridDim.x * g.blockDim.x;
      const thread = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
      let seen = g.u32(0);
      for (let i = thread; i < vectors; i += step) {
        const rows = g.registers('v16', RANKS - 1);
        for (const other of g.unroll(RANKS - 1)) {
          const peer = (g.rank + 1 + other) % RANKS;
          rows[other] = g.load(win.at(peer).rows.at(g.rank * CAPACITY + i), { cache: 'stream' });
        }
        for (const other of g.unroll(RANKS - 1)) {
          seen ^= g.lane(rows[other]!, 'u32', 0) ^ g.lane(rows[other]!, 'u32', 3);
        }
      }
      g.store(sink.at(thread), seen);
    },
  );
}
