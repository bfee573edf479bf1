/** The kernels that only measure a machine: a meeting of all ranks, and what the links carry at best. */
import { callSite, type Stream } from '../../gpu/index.js';
import { field, type Kernel, kernel, layout, peers, pointer, section } from '../../lang/index.js';
import { limits } from '../../moe/layer/index.js';
import type { World } from '../../net/world/index.js';
import { layerParameters } from './layer.js';
import { entry, number, type RegisteredKernel } from './shape.js';

// The flag barrier: what it costs that all ranks meet, and nothing else. One block a rank; each round every rank
// tells every other that it has come, and waits until all have.
//
// With a pause it also aligns the ranks for a measurement: all meet, everybody waits while the hosts enqueue what is
// to be measured, all meet again.

/** Launched with one block of whole warps, a thread for each rank at least. */
export function flagBarrierKernel(ranks: number) {
  const window = layout('flag barrier', {
    /** Rounds that this rank has come to: written and read by its own launches only. */
    rounds: field('u32', 1),
    /** 1 + the rank that did not come, 0 while all do. */
    failed: field('u32', 1),
    /** [source]: the round that it has come to. It only grows, so a peer that is ahead does no harm. */
    arrived: field('u32', ranks),
  });
  return kernel(
    {
      name: 'flag_barrier',
      params: {
        win: peers(window),
        rounds: 'u32',
        /** Microseconds between the first round and the others. */
        pause: 'u32',
        limit: 'u32',
      },
      using: { RANKS: ranks },
    },
    (g, { win, rounds, pause, limit }, { RANKS }) => {
      const mine = win.at(g.rank);
      const before = g.load(mine.rounds);
      const peer = g.threadIdx.x;
      for (let round = g.u32(1); round <= rounds; round += 1) {
        // All threads have met their peers of the last round, and the release covers what they did.
        g.barrier();
        if (peer === 0) g.store(mine.rounds, before + round);
        if (peer < RANKS) {
          g.store(win.at(peer).arrived.at(g.rank), before + round, { order: 'release', scope: 'sys' });
          const came = g.awaitEpoch(mine.arrived.at(peer), before + round, {
            order: 'acquire',
            scope: 'sys',
            limit,
          });
          if (!came) g.store(mine.failed, peer + 1, { order: 'relaxed', scope: 'cta' });
        }
        if (round === 1 && pause > 0) {
          const start = g.clock();
          while (g.clock() - start < g.u64(pause) * 1000n) g.sleep(500);
        }
      }
    },
  );
}

/**
 * This rank's part of a flag barrier. The kernel is made for all ranks of the world, and each of them calls this. `limit`: microseconds to
 * wait for a peer.
 */
export async function createFlagBarrier(
  world: World,
  kernel: ReturnType<typeof flagBarrierKernel>,
  limit: number,
) {
  const { device, ranks, rank } = world;
  const { layout } = kernel.params.win;
  const window = await world.createWindow(layout.bytes, 'barrier flags');
  const site = await callSite(device, kernel, { grid: 1, block: Math.ceil(ranks / 32) * 32, rank });
  site.set.win(window);
  site.set.limit(limit);
  return {
    /** Enqueues so many meetings; `pause`: microseconds between the first and the others. */
    meet(stream: Stream, rounds: number, pause: number): void {
      site.set.rounds(rounds);
      site.set.pause(pause);
      site.launch(stream);
    },
    /** The rank that did not come to a meeting that is enqueued; null where all did. */
    async missed(stream: Stream): Promise<number | null> {
      const bytes = await stream.copyOut(window.own.address + section(layout, 'failed').offset, 4);
      const failed = new Uint32Array(bytes.slice().buffer)[0]!;
      return failed === 0 ? null : failed - 1;
    },
    close: () => window.close(),
  };
}

// The best rate of the links: every rank stores to every peer, or loads from every peer, so many 16-byte vectors,
// all ranks at once, with no ids, no flags and no rendezvous. Dispatch and combine are measured against these.

/** [source][vector]: each source has a place of its own, so the ranks never write to the same bytes. */
const transferWindow = (ranks: number, capacity: number) =>
  layout('transfer window', { rows: field('v16', ranks * capacity) });

/** Blocks and threads that saturate NVLink. For many bytes most launches do; this one is fast for few bytes too. */
export const transferLaunch = { blocks: 96, threads: 512 } as const;

/**
 * Stores. The vectors come from registers: what reading them from memory costs is dispatch's affair, not the links'.
 * A block's worth of vectors at a time goes to one peer: runs of 8 KiB cost less than a warp's 512 bytes to each peer in
 * turn.
 */
export function storeCeilingKernel(ranks: number, capacity: number) {
  const window = transferWindow(ranks, capacity);
  return kernel(
    {
      name: 'ceiling_stores',
      maxThreads: transferLaunch.threads,
      params: {
        win: peers(window),
        /** Vectors for each peer; at most the capacity. */
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
          // Values that differ: links or memory might be faster with zeros, or with one value over and over.
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
export function loadCeilingKernel(ranks: number, capacity: number) {
  const window = transferWindow(ranks, capacity);
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

/** The best rate of a GPU's own memory: each vector is read once. `sink` as above. */
export const readCeilingKernel = kernel(
  {
    name: 'ceiling_reads',
    maxThreads: transferLaunch.threads,
    params: { from: pointer('v16'), vectors: 'u32', sink: pointer('u32') },
    using: { AT_ONCE: 8 },
  },
  (g, { from, vectors, sink }, { AT_ONCE }) => {
    const threads = g.gridDim.x * g.blockDim.x;
    const first = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
    let seen = g.u32(0);
    for (let base = first; base < vectors; base += AT_ONCE * threads) {
      const some = g.registers('v16', AT_ONCE);
      for (const n of g.unroll(AT_ONCE)) {
        if (base + n * threads < vectors) some[n] = g.load(from.at(base + n * threads), { cache: 'stream' });
      }
      for (const n of g.unroll(AT_ONCE)) seen ^= g.lane(some[n]!, 'u32', 0) ^ g.lane(some[n]!, 'u32', 3);
    }
    g.store(sink.at(first), seen);
  },
);

export const ceilings: readonly RegisteredKernel[] = [
  entry('flag_barrier', 'what it costs that all ranks meet', { ranks: layerParameters.ranks }, ({ ranks }) =>
    flagBarrierKernel(ranks),
  ),
  entry('ceiling_reads', 'what a GPU’s own memory brings at best', {}, () => readCeilingKernel),
  ofLinks('ceiling_stores', 'stores to all peers', storeCeilingKernel),
  ofLinks('ceiling_loads', 'loads from all peers', loadCeilingKernel),
];

function ofLinks(name: string, what: string, make: (ranks: number, vectors: number) => Kernel) {
  const ranks = number('ranks', [2, limits.ranks], 8);
  const vectors = number('16-byte vectors to each peer', [1, 2 ** 26], 2 ** 16);
  const summary = `what the links carry at best: ${what}`;
  return entry(name, summary, { ranks, vectors }, (of) => make(of.ranks, of.vectors));
}
