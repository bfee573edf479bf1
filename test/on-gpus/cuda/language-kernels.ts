/** Kernels of the language, for the tests of the device. */
import { field, kernel, layout, list, peers, pointer } from '../../../src/lang/index.js';

/** Writes all its parameters down. */
export const everything = kernel(
  {
    name: 'everything',
    params: {
      on: 'bool',
      small: 'i32',
      out: list(pointer('u32'), 2),
      big: 'u64',
      real: 'f32',
      off: 'bool',
      count: 'u32',
    },
  },
  (g, { on, small, out, big, real, off, count }) => {
    if (g.threadIdx.x === 0) {
      const [first, second] = [out[0]!, out[1]!];
      g.store(first.at(0), on ? g.u32(1) : g.u32(0));
      g.store(first.at(1), g.u32(small));
      g.store(first.at(2), g.u32(big >> 32n));
      g.store(first.at(3), g.u32(big));
      g.store(second.at(0), g.u32(real * 4));
      g.store(second.at(1), off ? g.u32(1) : g.u32(0));
      g.store(second.at(2), count);
      g.store(second.at(3), g.rank);
    }
  },
);

/** Blocks 0 and 1 of a cluster calculate with pairs of bf16 that the other holds in its shared memory, each with each. */
export const neighbours = kernel(
  { name: 'neighbours', params: { words: pointer('u32'), out: pointer('u32') }, cluster: 2, maxThreads: 32 },
  (g, { words, out }) => {
    const tile = g.shared('u32', 32);
    const made = g.shared('u32', 160);
    const other = 1 - (g.blockIdx.x % 2);
    const mine = g.load(words.at(g.blockIdx.x * 32 + g.laneId));
    g.store(tile.at(g.laneId), mine);
    g.cluster.barrier();
    for (let n = g.u32(0); n < 32; n += 1) {
      const theirs = g.cluster.load(tile.at(n), other);
      g.cluster.store(made.at(g.laneId), g.addPairs(mine, theirs), other);
      g.cluster.store(made.at(32 + g.laneId), g.multiplyPairs(mine, theirs), other);
      g.cluster.store(made.at(64 + g.laneId), g.fmaPairs(mine, theirs, mine), other);
      g.cluster.store(made.at(96 + g.laneId), g.minPairs(mine, theirs), other);
      g.cluster.store(made.at(128 + g.laneId), g.maxPairs(mine, theirs), other);
      g.cluster.barrier();
      for (let i = g.laneId; i < 160; i += 32) {
        g.store(out.at((g.blockIdx.x * 32 + n) * 160 + i), g.load(made.at(i)));
      }
      g.cluster.barrier();
    }
  },
);

/** Every rank tells every rank something in every round, and checks what it is told; counts the mistakes. */
export function exchangeKernel(RANKS: number) {
  const COUNT = 256;
  const Window = layout('Exchange', {
    epoch: field('u32', 1),
    arrived: field('u32', RANKS),
    // Two halves, used in turn: a peer may already send for round n + 1 while round n is being read here. It
    // cannot be in round n + 2, because it awaits this rank's arrival in n + 1 first.
    data: field('u32', 2 * RANKS * COUNT),
    errors: field('u32', 1),
  });
  const exchange = kernel(
    {
      name: 'exchange',
      params: { win: peers(Window), limit: 'u32' },
      using: { RANKS, COUNT },
      maxThreads: 256,
    },
    (g, { win, limit }, { RANKS, COUNT }) => {
      const mine = win.at(g.rank);
      const epoch = g.load(mine.epoch.at(0)) + 1;
      const half = (epoch % 2) * (RANKS * COUNT);
      for (let peer = g.u32(0); peer < RANKS; peer += 1) {
        for (let i = g.threadIdx.x; i < COUNT; i += g.blockDim.x) {
          g.store(win.at(peer).data.at(half + g.rank * COUNT + i), epoch * 1000 + g.rank * 100 + i);
        }
      }
      g.barrier();
      if (g.threadIdx.x < RANKS) {
        g.store(win.at(g.threadIdx.x).arrived.at(g.rank), epoch, { order: 'release', scope: 'sys' });
        const came = g.awaitEpoch(mine.arrived.at(g.threadIdx.x), epoch, {
          order: 'acquire',
          scope: 'sys',
          limit,
        });
        if (!came) g.atomicAdd(mine.errors.at(0), g.u32(1), { order: 'relaxed', scope: 'gpu' });
      }
      g.barrier();
      for (let peer = g.u32(0); peer < RANKS; peer += 1) {
        for (let i = g.threadIdx.x; i < COUNT; i += g.blockDim.x) {
          const value = g.load(mine.data.at(half + peer * COUNT + i));
          if (value !== epoch * 1000 + peer * 100 + i) {
            g.atomicAdd(mine.errors.at(0), g.u32(1), { order: 'relaxed', scope: 'gpu' });
          }
        }
      }
      if (g.threadIdx.x === 0) g.store(mine.epoch.at(0), epoch);
    },
  );
  return { Window, kernel: exchange };
}
