/**
 * Schedules are fair: whoever can run does run, within a number of steps that grows with how many others can. So a loop
 * that polls for what another thread will do ends in every schedule, and only hopeless ones are called so.
 */
import { describe, expect, it } from 'vitest';
import { formatFinding, type MachineOptions } from '../../../src/gpu/sim/index.js';
import { Random } from '../../../src/gpu/sim/random.js';
import { PrioritySchedule, RandomSchedule, Task } from '../../../src/gpu/sim/schedule.js';
import { field, type IrModule, kernel, layout, peers, pointer } from '../../../src/lang/index.js';
import { type Arguments, download, launch, machineOf, type Rank, schedules, windowsOf } from './harness.js';

/** Priority schedules that are unfair leave somebody out of a lock by the thirtieth. */
const seeds = 40;

const Words = layout('Words', { words: field('u32', 64) });
const params = { win: peers(Words) };

/** One thread polls, and tells its warp by a shuffle. */
const pollAndShuffle = kernel({ name: 'pollAndShuffle', params }, (g, { win }) => {
  const { words } = win.at(0);
  if (g.rank === 0) {
    let seen = g.u32(0);
    while (seen === 0) {
      if (g.laneId === 0) seen = g.load(words, { order: 'acquire', scope: 'sys' });
      seen = g.warp.shuffle(seen, 0);
    }
  } else if (g.threadIdx.x === 0) {
    g.store(words, 1, { order: 'release', scope: 'sys' });
  }
});

/** One thread polls, and tells its block by a barrier. */
const pollAndMeet = kernel({ name: 'pollAndMeet', params }, (g, { win }) => {
  const { words } = win.at(0);
  const told = g.shared('u32', 1);
  if (g.rank === 0) {
    let seen = g.u32(0);
    while (seen === 0) {
      if (g.threadIdx.x === 0) g.store(told, g.load(words, { order: 'acquire', scope: 'sys' }));
      g.barrier();
      seen = g.load(told);
      g.barrier();
    }
  } else if (g.threadIdx.x === 0) {
    g.store(words, 1, { order: 'release', scope: 'sys' });
  }
});

/** Warps tell each other numbers in turn; in each one thread polls and the others hear of it by shuffles. */
const pingPong = kernel({ name: 'pingPong', params }, (g, { win }) => {
  const { words } = win.at(0);
  for (let n = g.u32(0); n < 6; n += 1) {
    let seen = g.u32(0);
    if (n % 3 === g.rank) {
      if (g.laneId === 0) g.store(words, n + 1, { order: 'release', scope: 'sys' });
    } else {
      while (seen < n + 1) {
        if (g.laneId === 0) seen = g.load(words, { order: 'acquire', scope: 'sys' });
        seen = g.warp.shuffle(seen, 0);
      }
    }
  }
});

/** A barrier of all blocks: each stores its round in its word and polls those of the others. */
const wordBarrier = kernel(
  { name: 'wordBarrier', params: { ...params, ranks: 'u32' } },
  (g, { win, ranks }) => {
    const { words } = win.at(0);
    const me = g.rank * g.gridDim.x + g.blockIdx.x;
    for (let round = g.u32(1); round <= 3; round += 1) {
      g.barrier();
      if (g.threadIdx.x === 0) g.store(words.at(me), round, { order: 'release', scope: 'sys' });
      for (let i = g.threadIdx.x; i < ranks * g.gridDim.x; i += g.blockDim.x) {
        let seen = g.u32(0);
        while (seen < round) seen = g.load(words.at(i), { order: 'acquire', scope: 'sys' });
      }
      g.barrier();
    }
  },
);

/** Each thread that comes takes a ticket, and polls until its turn has come. */
const ticketLock = kernel({ name: 'ticketLock', params }, (g, { win }) => {
  const { words } = win.at(0);
  const ticket = g.atomicAdd(words, 1, { order: 'relaxed', scope: 'sys' });
  while (g.load(words.at(4), { order: 'acquire', scope: 'sys' }) !== ticket) {}
  g.store(words.at(8), g.load(words.at(8)) + 1);
  g.store(words.at(4), ticket + 1, { order: 'release', scope: 'sys' });
});

/** A lock that whoever finds it open closes behind itself. */
const casLock = kernel({ name: 'casLock', params }, (g, { win }) => {
  const { words } = win.at(0);
  while (g.atomicCas(words, 0, 1, { order: 'acquire', scope: 'sys' }) !== 0) {}
  g.store(words.at(8), g.load(words.at(8)) + 1);
  g.store(words, 0, { order: 'release', scope: 'sys' });
});

/** The same, and who waits counts how often it has looked: memory changes all the time. */
const countingLock = kernel({ name: 'countingLock', params }, (g, { win }) => {
  const { words } = win.at(0);
  const ticket = g.atomicAdd(words, 1, { order: 'relaxed', scope: 'sys' });
  while (g.load(words.at(4), { order: 'acquire', scope: 'sys' }) !== ticket)
    g.atomicAdd(words.at(12), 1, { order: 'relaxed', scope: 'sys' });
  g.store(words.at(8), g.load(words.at(8)) + 1);
  g.store(words.at(4), ticket + 1, { order: 'release', scope: 'sys' });
});

/** Rank 1 tells rank 0 something after a while, longer than any run takes. */
const sleepingWriter = kernel({ name: 'sleepingWriter', params }, (g, { win }) => {
  const { words } = win.at(0);
  if (g.rank === 0) {
    while (g.load(words, { order: 'acquire', scope: 'sys' }) === 0) {}
  } else if (g.rank === 1) {
    g.sleep(1_000_000_000);
    g.store(words, 1, { order: 'release', scope: 'sys' });
  }
});

/** Rank 0 gives up after having looked so often. */
const impatient = kernel({ name: 'impatient', params: { ...params, looks: 'u32' } }, (g, { win, looks }) => {
  const { words } = win.at(0);
  if (g.rank === 0) {
    let seen = g.u32(0);
    for (let i = g.u32(0); i < looks && seen === 0; i += 1)
      seen = g.load(words, { order: 'acquire', scope: 'sys' });
    g.store(words.at(8), 1 + seen);
  } else {
    g.store(words, 1, { order: 'release', scope: 'sys' });
  }
});

/** It polls for two others at once. */
const both = kernel({ name: 'both', params }, (g, { win }) => {
  const { words } = win.at(0);
  if (g.rank === 0) {
    let seen = g.u32(0);
    while (seen !== 2) {
      seen = g.load(words, { order: 'acquire', scope: 'sys' });
      seen += g.load(words.at(4), { order: 'acquire', scope: 'sys' });
    }
    g.store(words.at(8), seen);
  } else {
    g.store(words.at(4 * (g.rank - 1)), 1, { order: 'release', scope: 'sys' });
  }
});

/** What was found, and word 8 of rank 0 in the end. */
async function run(
  module: IrModule,
  shape: { grid?: number; block?: number },
  options: Partial<MachineOptions>,
  args: Arguments = {},
): Promise<{ findings: readonly string[]; result: number }> {
  const { machine, ranks } = machineOf({ ranks: 3, mode: 'checked', ...options });
  const windows = await windowsOf(ranks, Words.bytes);
  await Promise.all(
    ranks.map(async (on) => {
      await launch(on, module, shape, { win: windows[on.rank]!, ...args });
      await on.stream.synchronize();
    }),
  );
  const findings = machine.findings.map(formatFinding);
  const [rank] = ranks as [Rank];
  const words = new Uint32Array(await download(rank, { address: windows[0]!.bases[0]!, bytes: Words.bytes }));
  return { findings, result: words[8]! };
}

describe.each(['random', 'priority'] as const)('under %s schedules, where nobody is stuck', (schedule) => {
  it.each([
    ['one polls for its warp', pollAndShuffle, { block: 32 }],
    ['one polls for its block', pollAndMeet, { block: 64 }],
    ['warps that take turns', pingPong, { block: 32 }],
    // The one in which random schedules that are unfair leave somebody out, from the second on.
    ['a barrier of words', wordBarrier, { grid: 2, block: 32 }, { ranks: 3 }],
    ['a ticket lock', ticketLock, { grid: 3, block: 1 }],
    ['a ticket lock of many', ticketLock, { grid: 2, block: 4 }],
    ['a ticket lock whose waiters write', countingLock, { grid: 3, block: 1 }],
    ['a lock by compare-and-swap', casLock, { grid: 3, block: 4 }],
    ['a writer that sleeps', sleepingWriter, { block: 32 }],
    ['a loop that looks at two places', both, { block: 1 }],
    ['a loop that gives up', impatient, { block: 1 }, { looks: 2 }],
  ] as const)('%s ends', async (_, { ir }, shape, args: Arguments = {}) => {
    const module = ir();
    for (let seed = 0; seed < seeds; seed++) {
      const { findings } = await run(
        module,
        shape,
        { schedule, seed: `${schedule}-${seed}`, stepLimit: 1_000_000 },
        args,
      );
      expect(findings).toEqual([]);
    }
  });
});

it('a lock that lets two in is found', async () => {
  const twoAtOnce = kernel({ name: 'twoAtOnce', params }, (g, { win }) => {
    const { words } = win.at(0);
    while (g.load(words, { order: 'acquire', scope: 'sys' }) !== 0) {}
    g.store(words, 1, { order: 'relaxed', scope: 'sys' });
    g.store(words.at(8), g.load(words.at(8)) + 1);
    g.store(words, 0, { order: 'release', scope: 'sys' });
  });
  const found = new Set<string>();
  for (let seed = 0; seed < seeds; seed++) {
    const { findings } = await run(twoAtOnce.ir(), { block: 1 }, { ranks: 2, seed: `${seed}` });
    for (const finding of findings) found.add(finding.split('\n')[0]!);
  }
  expect([...found]).toEqual(['Data race on window, words[8]']);
});

it('a kernel that polls in a loop hears from a host that had found nothing to do', async () => {
  const asks = kernel({ name: 'asks', params: { words: pointer('u32') } }, (g, { words }) => {
    g.store(words, 1, { order: 'release', scope: 'sys' });
    while (g.load(words.at(1), { order: 'acquire', scope: 'sys' }) === 0) {}
  });
  for (const how of schedules(seeds)) {
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked', ...how });
    const { host, address } = rank.device.allocateMapped(8, 'words');
    const end = machine.startHost(0, {
      name: 'answers',
      hearsOutside: false,
      step() {
        if (host.load(0) === 0 || host.load(4) === 1) return false;
        host.store(4, 1);
        return true;
      },
      onError: (error) => expect(error).toBeUndefined(),
    });
    await launch(rank, asks.ir(), { block: 1 }, { words: address });
    await rank.stream.synchronize();
    end();
    expect(machine.findings.map(formatFinding)).toEqual([]);
  }
});

describe('whoever can run waits for so many steps of each other at most', () => {
  class Busy extends Task {
    readonly isThread: boolean;
    ran = 0;

    constructor(
      number: number,
      readonly rank: number,
    ) {
      super();
      this.isThread = number % 10 !== 0;
    }
  }

  it.each([
    ['random', RandomSchedule],
    ['priority', PrioritySchedule],
  ] as const)('%s', (_, Schedule) => {
    for (let seed = 0; seed < 20; seed++) {
      const schedule = new Schedule(4, Random.from(`${seed}`));
      const tasks = Array.from({ length: 40 }, (_, i) => new Busy(i, i % 4));
      for (const task of tasks) schedule.add(task);
      let longest = 0;
      for (let step = 1; step < 50_000; step++) {
        const task = schedule.next() as Busy;
        longest = Math.max(longest, step - task.ran);
        task.ran = step;
        schedule.add(task);
      }
      for (const { ran } of tasks) longest = Math.max(longest, 50_000 - ran);
      // A priority schedule has up to four points at which a task falls behind without having had its turns.
      expect(longest).toBeLessThan(5 * 201 * tasks.length);
    }
  });
});
