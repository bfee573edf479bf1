/** A small kernel with its own check subject: ranks pass rows to their neighbours, round after round. */

import type { SimMachine } from '../../../src/gpu/sim/index.js';
import { field, type Kernel, kernel, layout, peers, pointer } from '../../../src/lang/index.js';
import { type CheckConfiguration, type CheckSubject, WrongResult } from '../../../src/verify/check/index.js';
import { launch, ranksOn, windowsOf } from '../../gpu/sim/harness.js';

export const Ring = layout('Ring', { sent: field('u32', 1), taken: field('u32', 1), row: field('u32', 4) });

export interface RingVariant {
  /** Without it, a rank overwrites a row that its neighbour may not have read. */
  readonly waitsUntilTaken: boolean;
}

/** Thread 0 sends a row to the next rank; once the row of the previous one has come, all add it up. */
export function ringKernel(ranks: number, { waitsUntilTaken }: RingVariant): Kernel {
  return kernel(
    {
      name: 'ring',
      params: { win: peers(Ring), epoch: 'u32', out: pointer('u32') },
      using: { RANKS: ranks, WAITS: waitsUntilTaken, LIMIT: 1_000_000 },
    },
    (g, { win, epoch, out }, { RANKS, WAITS, LIMIT }) => {
      const mine = win.at(g.rank);
      const next = win.at((g.rank + 1) % RANKS);
      const previous = win.at((g.rank + RANKS - 1) % RANKS);
      if (g.threadIdx.x === 0) {
        if (WAITS) g.awaitEpoch(mine.taken, epoch - 1, { order: 'acquire', scope: 'sys', limit: LIMIT });
        for (let i = g.u32(0); i < 4; i++) g.store(next.row.at(i), epoch * 100 + g.rank * 10 + i);
        g.store(next.sent, epoch, { order: 'release', scope: 'sys' });
        g.awaitEpoch(mine.sent, epoch, { order: 'acquire', scope: 'sys', limit: LIMIT });
      }
      g.barrier();
      g.store(out.at(g.threadIdx.x), g.load(mine.row.at(g.threadIdx.x)));
      g.barrier();
      if (g.threadIdx.x === 0) g.store(previous.taken, epoch, { order: 'release', scope: 'sys' });
    },
  );
}

export function ringConfiguration(kernel: Kernel, ranks: number, rounds: number): CheckConfiguration {
  return {
    name: `ring of ${ranks}, ${rounds} rounds`,
    ranks,
    async run(machine: SimMachine) {
      const module = kernel.ir();
      const all = ranksOn(machine, ranks);
      const windows = await windowsOf(all, Ring.bytes);
      await Promise.all(
        all.map(async (rank) => {
          const outs = Array.from({ length: rounds }, () => rank.device.allocate(16, 'output'));
          for (const [i, out] of outs.entries()) {
            await launch(rank, module, { block: 4 }, { win: windows[rank.rank]!, epoch: i + 1, out });
          }
          for (const [i, out] of outs.entries()) {
            const bytes = await rank.stream.copyOut(out.address, 16);
            const got = [...new Uint32Array(bytes.slice().buffer)];
            const from = (rank.rank + ranks - 1) % ranks;
            const want = [0, 1, 2, 3].map((j) => (i + 1) * 100 + from * 10 + j);
            if (got.join() !== want.join())
              throw new WrongResult(`round ${i + 1}: ${got} instead of ${want}`);
          }
        }),
      );
    },
  };
}

export function ringSubject(variant: RingVariant = { waitsUntilTaken: true }): CheckSubject {
  return {
    name: 'rings',
    kernels: ['ring'],
    configurations: [2, 3].map((ranks) => ringConfiguration(ringKernel(ranks, variant), ranks, 3)),
  };
}
