/** Places that are used again round after round: rings and gathers, whose hints must not blame what is as it should be. */
import { field, type Kernel, kernel, layout, peers, pointer } from '../../../../src/lang/index.js';
import { type Exhibit, onWindow, type Twins } from './exhibit.js';

const Ring = layout('ring', { arrived: field('u32', 1), taken: field('u32', 1), row: field('u32', 40) });
const ringParams = { win: peers(Ring), out: pointer('u32'), epoch: 'u32' } as const;

/** Two warps hand a row to the right, and take one from the left. */
function ring(ranks: number, { waits = true, meets = true }: { waits?: boolean; meets?: boolean }): Kernel {
  return kernel(
    { name: 'ring', params: ringParams, using: { RANKS: ranks, WAITS: waits, MEETS: meets } },
    (g, { win, out, epoch }, { RANKS, WAITS, MEETS }) => {
      const mine = win.at(g.rank);
      const right = win.at((g.rank + 1) % RANKS);
      const left = win.at((g.rank + RANKS - 1) % RANKS);
      const i = g.threadIdx.x;
      if (WAITS) {
        if (i === 0) g.awaitEpoch(mine.taken, epoch - 1, { order: 'acquire', scope: 'sys', limit: 1000 });
        g.barrier();
      }
      g.store(right.row.at(i), epoch);
      g.barrier();
      if (i === 0) {
        g.store(right.arrived, epoch, { order: 'release', scope: 'sys' });
        g.awaitEpoch(mine.arrived, epoch, { order: 'acquire', scope: 'sys', limit: 1000 });
      }
      g.barrier();
      g.store(out.at(i), g.load(mine.row.at(i)));
      if (MEETS) g.barrier();
      if (i === 0) g.store(left.taken, epoch, { order: 'release', scope: 'sys' });
    },
  );
}

const Gather = layout('gather', {
  arrived: field('u32', 3),
  taken: field('u32', 3),
  /** [source][element] */
  row: field('u32', 3 * 40),
});
const gatherParams = { win: peers(Gather), out: pointer('u32'), epoch: 'u32' } as const;

/** Every rank hands a row to all the others. A thread a rank waits. */
function gather(ranks: number, waits: boolean): Kernel {
  return kernel(
    { name: 'gather', params: gatherParams, using: { RANKS: ranks, WAITS: waits } },
    (g, { win, out, epoch }, { RANKS, WAITS }) => {
      const mine = win.at(g.rank);
      const i = g.threadIdx.x;
      if (WAITS) {
        if (i < RANKS)
          g.awaitEpoch(mine.taken.at(i), epoch - 1, { order: 'acquire', scope: 'sys', limit: 1000 });
        g.barrier();
      }
      for (let p = g.u32(0); p < RANKS; p += 1) g.store(win.at(p).row.at(g.rank * 40 + i), epoch);
      g.barrier();
      if (i < RANKS) {
        g.store(win.at(i).arrived.at(g.rank), epoch, { order: 'release', scope: 'sys' });
        g.awaitEpoch(mine.arrived.at(i), epoch, { order: 'acquire', scope: 'sys', limit: 1000 });
      }
      g.barrier();
      for (let p = g.u32(0); p < RANKS; p += 1) g.store(out.at(p * 40 + i), g.load(mine.row.at(p * 40 + i)));
      g.barrier();
      if (i < RANKS) g.store(win.at(i).taken.at(g.rank), epoch, { order: 'release', scope: 'sys' });
    },
  );
}

function exhibit(
  name: string,
  ranks: number,
  twins: Twins,
  bytes: number,
  [load, store]: readonly [string, string],
  hint: RegExp,
): Exhibit {
  return {
    name,
    ranks,
    run: onWindow(twins, bytes, { block: 40, rounds: 3 }),
    expect: { kind: 'race', buffer: 'window', location: /^row/, statements: [load, store], hint },
  };
}

const ringAccesses = ['g.store(out.at(i), g.load(mine.row', 'g.store(right.row'] as const;
const gatherAccesses = ['for (let p = g.u32(0); p < RANKS; p += 1) g.store(out', 'for (let p'] as const;
/** Where the store came first, nothing tells whose fault it is. */
const reused =
  /^(The store overwrites what rank \d read before, and nothing orders the reuse|Either the load comes too early, or the store overwrites what it should read): no release → acquire/;

export const reuse: readonly Exhibit[] = [2, 3].flatMap((ranks) => [
  exhibit(
    `a ring of ${ranks} that does not wait until its row was taken`,
    ranks,
    { wrong: ring(ranks, { waits: false }), right: ring(ranks, {}) },
    Ring.bytes,
    ringAccesses,
    reused,
  ),
  exhibit(
    `a ring of ${ranks} whose threads do not meet before one says that the row was taken`,
    ranks,
    { wrong: ring(ranks, { meets: false }), right: ring(ranks, {}) },
    Ring.bytes,
    ringAccesses,
    /^Thread 0 of the block published \(the store at \S+\), but nothing orders the load of thread \d+ at \S+ before that: a barrier must come after the load and before the publication\.$/,
  ),
  exhibit(
    `a gather of ${ranks} that does not wait until its rows were taken`,
    ranks,
    { wrong: gather(ranks, false), right: gather(ranks, true) },
    Gather.bytes,
    gatherAccesses,
    reused,
  ),
]);
