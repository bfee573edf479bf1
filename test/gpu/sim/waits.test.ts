import { describe, expect, it } from 'vitest';
import { formatFinding, type MachineOptions, SimMachine } from '../../../src/gpu/sim/index.js';
import { field, kernel, layout, peers, pointer } from '../../../src/lang/index.js';
import { download, launch, machineOf, type Rank, windowsOf } from './harness.js';

const Flags = layout('Flags', { arrived: field('u32', 4) });

/** Tells rank `to` that epoch has come. */
const tell = kernel(
  { name: 'tell', params: { win: peers(Flags), to: 'u32', epoch: 'u32' } },
  (g, { win, to, epoch }) => {
    g.store(win.at(to).arrived.at(g.rank), epoch, { order: 'release', scope: 'sys' });
  },
);

/** out = 1 if rank `from` told in time, else 2. */
const hear = kernel(
  {
    name: 'hear',
    params: { win: peers(Flags), from: 'u32', epoch: 'u32', limit: 'u32', out: pointer('u32') },
  },
  (g, { win, from, epoch, limit, out }) => {
    const there = g.awaitEpoch(win.at(g.rank).arrived.at(from), epoch, {
      order: 'acquire',
      scope: 'sys',
      limit,
    });
    g.store(out, there ? 1 : 2);
  },
);

const one = { block: 1 };

/** Two ranks, of which a tells b of epochs; `hear` resolves with what b's wait for one came to. */
async function twoRanks(options: Partial<MachineOptions>) {
  const { machine, ranks } = machineOf({ ranks: 2, ...options });
  const windows = await windowsOf(ranks, Flags.bytes);
  const [a, b] = ranks as [Rank, Rank];
  const out = b.device.allocate(4, 'out');
  return {
    ...{ machine, windows, a, b },
    async hear(epoch: number, limit = 1000) {
      await launch(b, hear.ir(), one, { win: windows[1]!, from: 0, epoch, limit, out });
      return async () => new Uint32Array(await download(b, out))[0];
    },
    tell: (epoch: number, to = 1) => launch(a, tell.ir(), one, { win: windows[0]!, to, epoch }),
  };
}

/** Tells rank `to` only behind a wait in vain. */
const tellLate = kernel(
  { name: 'tell_late', params: { win: peers(Flags), to: 'u32', limit: 'u32' } },
  (g, { win, to, limit }) => {
    g.awaitEpoch(win.at(g.rank).arrived.at(to), 1, { order: 'acquire', scope: 'sys', limit });
    g.store(win.at(to).arrived.at(g.rank), 1, { order: 'release', scope: 'sys' });
  },
);

it('a wait whose limit runs out may see in its last look what came meanwhile, and need not', async () => {
  const seen = new Set<number | undefined>();
  for (let seed = 0; seed < 20; seed++) {
    const { machine, windows, a, hear } = await twoRanks({ mode: 'checked', seed: String(seed) });
    const heard = await hear(1);
    await launch(a, tellLate.ir(), one, { win: windows[0]!, to: 1, limit: 1000 });
    await a.stream.synchronize();
    seen.add(await heard());
    expect(machine.statistics.timeLimits).toBe(1);
  }
  expect([...seen].sort()).toEqual([1, 2]);
});

describe.each(['fast', 'checked'] as const)('on a %s machine', (mode) => {
  it('a wait is over once its epoch is reached, also past the wrap', async () => {
    const { machine, a, hear, tell } = await twoRanks({ mode });
    for (const epoch of [1, 2, 0x7fffffff, 0xfffffffe, 3]) {
      const heard = await hear(epoch);
      await tell(epoch);
      expect(await heard()).toBe(1);
      await a.stream.synchronize();
    }
    expect(machine.findings).toEqual([]);
  });

  it('a wait may want a value, any other, or some bits only', async () => {
    const conditions = kernel({ name: 'conditions', params: { out: pointer('u32') } }, (g, { out }) => {
      const flag = out.at(3);
      if (g.threadIdx.x === 0) {
        const came = g.awaitEpoch(flag, 7, { order: 'acquire', scope: 'gpu', limit: 1000, until: '==' });
        g.store(out, g.u32(came));
        g.store(flag, 0x307, { order: 'release', scope: 'gpu' });
      } else if (g.threadIdx.x === 1) {
        const bits = { order: 'acquire', scope: 'gpu', limit: 1000, until: '==', mask: 3 } as const;
        g.store(out.at(1), g.u32(g.awaitEpoch(flag, 3, bits)));
      } else if (g.threadIdx.x === 2) {
        const bits = { order: 'acquire', scope: 'gpu', limit: 1000, until: '!=', mask: 0xff00 } as const;
        g.store(out.at(2), g.u32(g.awaitEpoch(flag, 0, bits)));
      } else {
        g.store(flag, 7, { order: 'release', scope: 'gpu' });
      }
    });
    const { machine, rank } = machineOf({ ranks: 1, mode });
    const out = rank.device.allocate(16, 'out');
    rank.stream.fill(out.address, 16, 0);
    await launch(rank, conditions.ir(), { block: 4 }, { out });
    expect([...new Uint32Array(await download(rank, out))]).toEqual([1, 1, 1, 0x307]);
    expect(machine.findings).toEqual([]);
  });

  it('of a u64 the lower half counts, and all of it is read', async () => {
    const halves = kernel({ name: 'halves', params: { out: pointer('u32') } }, (g, { out }) => {
      const word = out.as('u64').at(1);
      if (g.threadIdx.x === 0) {
        const came = g.awaitEpoch(word, 3, { order: 'acquire', scope: 'gpu', limit: 1000 });
        g.store(out, g.u32(came) + g.load(out.at(1)));
      } else {
        g.store(out.at(1), 40);
        g.atomicAdd(word, 4n, { order: 'release', scope: 'gpu' });
      }
    });
    const { machine, rank } = machineOf({ ranks: 1, mode });
    const out = rank.device.allocate(16, 'out');
    // Nearly wrapped, with something in the upper half.
    rank.stream.copyIn(out.address, new Uint8Array(Uint32Array.of(0, 0, 0xffff_ffff, 9).buffer));
    await launch(rank, halves.ir(), { block: 2 }, { out });
    expect([...new Uint32Array(await download(rank, out))]).toEqual([41, 40, 3, 10]);
    expect(machine.findings).toEqual([]);
  });

  it('a wait without hope says which bits it wanted', async () => {
    const lonely = kernel({ name: 'lonely', params: { out: pointer('u32') } }, (g, { out }) => {
      g.awaitEpoch(out, 3, {
        order: 'relaxed',
        scope: 'gpu',
        limit: 9,
        until: '==',
        mask: g.threadIdx.x + 7,
      });
    });
    const { machine, rank } = machineOf({ ranks: 1, mode });
    const out = rank.device.allocateWindow(4, 'out');
    await launch(rank, lonely.ir(), one, { out });
    await rank.stream.synchronize();
    if (mode === 'checked')
      expect(formatFinding(machine.findings[0]!)).toContain('is 0, wanted 3 in the bits 0x7');
  });

  it('a limit of 0 looks once', async () => {
    const { machine, hear } = await twoRanks({ mode });
    expect(await (await hear(1, 0))()).toBe(2);
    expect(machine.findings).toEqual([]);
  });

  it('a wait that nobody will end runs out, so that the host gets its answer', async () => {
    const { machine, hear } = await twoRanks({ mode, configuration: 'lonely', seed: '7' });
    expect(await (await hear(3))()).toBe(2);
    if (mode === 'fast') {
      expect(machine.findings).toEqual([]);
      return;
    }
    expect(machine.findings).toHaveLength(1);
    const text = formatFinding(machine.findings[0]!);
    expect(text).toContain('1 thread waits and nothing else can change that');
    expect(text).toContain('g.awaitEpoch(win.at(g.rank).arrived.at(from)');
    expect(text).toContain('by hear on rank 1, block 0, thread 0');
    expect(text).toContain('window of rank 1, arrived[0] is 0, wanted at least 3');
    expect(text).toContain('lonely/7');
  });

  it('a host that still has something to enqueue is waited for', async () => {
    const { machine, hear, tell } = await twoRanks({ mode });
    machine.hostEntered(0);
    machine.hostEntered(1);
    const answer = (await hear(1))();
    // Rank 0 does something that the machine knows nothing of, for many turns of the event loop.
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
    await tell(1);
    expect(await answer).toBe(1);
    expect(machine.findings).toEqual([]);
  });

  it.each([
    ['waits for a stuck one does not hide that it is stuck', 'hostWaiting'],
    ['has exited is not waited for', 'hostLeft'],
  ] as const)('a host that %s', async (_, how) => {
    const { machine, hear } = await twoRanks({ mode });
    machine.hostEntered(0);
    machine.hostEntered(1);
    const answer = (await hear(1))();
    machine[how](0);
    expect(await answer).toBe(2);
  });

  it('the loss of a rank leaves its memory readable and its peers with a wait that runs out', async () => {
    const { machine, windows, a, b, hear: hearOfA, tell } = await twoRanks({ mode });
    await tell(9, 0);
    await a.stream.synchronize();
    const never = a.device.allocate(4, 'out');
    await launch(a, hear.ir(), one, { win: windows[0]!, from: 1, epoch: 1, limit: 1000, out: never });
    const lost = a.stream.synchronize();
    const heard = await hearOfA(1);
    machine.kill(0);
    await expect(lost).rejects.toThrow(/rank 0 of the simulated machine was killed/);
    expect(await heard()).toBe(2);
    const read = await b.stream.copyOut(windows[1]!.bases[0]!, 4);
    expect([...read]).toEqual([9, 0, 0, 0]);
    await expect(a.stream.synchronize()).rejects.toThrow(/killed/);
    // Waiting in vain for the dead is no mistake. (Reading its window without having met it is a race.)
    expect(machine.findings.map((f) => f.kind)).not.toContain('stuck-wait');
  });

  it('a wait has a limit also where others look at memory for what its thread does then', async () => {
    const look = kernel({ name: 'look', params: { flags: pointer('u32'), limit: 'u32' } }, (g, params) => {
      const { flags, limit } = params;
      if (g.blockIdx.x === 0) {
        g.awaitEpoch(flags, 1, { order: 'acquire', scope: 'gpu', limit });
        g.store(flags.at(1), 1, { order: 'release', scope: 'gpu' });
      } else {
        while (g.load(flags.at(1), { order: 'acquire', scope: 'gpu' }) === 0);
        g.store(flags.at(2), 7);
      }
    });
    const { machine, rank } = machineOf({ ranks: 1, mode });
    const flags = rank.device.allocateWindow(12, 'flags');
    await launch(rank, look.ir(), { grid: 2, block: 1 }, { flags, limit: 1000 });
    expect([...new Uint32Array(await download(rank, flags))]).toEqual([0, 1, 7]);
    expect(machine.findings.map(({ kind }) => kind)).toEqual(mode === 'checked' ? ['stuck-wait'] : []);
  });

  it('a rank can be killed in the middle of a kernel', async () => {
    const many = kernel({ name: 'many', params: { out: pointer('u32') } }, (g, { out }) => {
      g.store(out.at(g.blockIdx.x), 1);
      g.warp.barrier();
    });
    const { machine, rank } = machineOf({ ranks: 1, mode });
    const out = rank.device.allocateWindow(4 * 64, 'out');
    await launch(rank, many.ir(), { grid: 64, block: 1 }, { out });
    machine.kill(0, 60);
    await expect(rank.stream.synchronize()).rejects.toThrow(/killed/);
    expect(machine.statistics.steps).toBeLessThan(70);
    expect(machine.trace).toEqual([]);
  });
});

it('more threads than a function takes arguments sleep at once', async () => {
  const nap = kernel({ name: 'nap', params: {} }, (g) => g.sleep(1000));
  const [rank] = machineOf({ ranks: 1, mode: 'fast' }).ranks;
  await launch(rank!, nap.ir(), { grid: 132, block: 1024 }, {});
  await rank!.stream.synchronize();
});

describe('a limited number of resident blocks', () => {
  /** Block 0 waits for the last block. */
  const backwards = kernel(
    { name: 'backwards', params: { flag: pointer('u32'), out: pointer('u32') } },
    (g, { flag, out }) => {
      if (g.blockIdx.x === g.gridDim.x - 1) g.store(flag, 1, { order: 'release', scope: 'gpu' });
      const there = g.awaitEpoch(flag, 1, { order: 'acquire', scope: 'gpu', limit: 10 });
      g.store(out.at(g.blockIdx.x), there ? 1 : 0);
    },
  );

  async function run(residentBlocks: number) {
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked', residentBlocks });
    const flag = rank.device.allocateWindow(4, 'flag');
    const out = rank.device.allocateWindow(16, 'out');
    await launch(rank, backwards.ir(), { grid: 4, block: 1 }, { flag, out });
    const words = [...new Uint32Array(await download(rank, out))];
    return { findings: machine.findings, out: words };
  }

  it('lets blocks meet that fit', async () => {
    expect(await run(4)).toEqual({ findings: [], out: [1, 1, 1, 1] });
  });

  it('shows that a kernel relies on more', async () => {
    const { findings, out } = await run(2);
    expect(findings.map((f) => f.kind)).toEqual(['stuck-wait']);
    expect(out[0]).toBe(0);
  });
});

describe('a loop that looks at memory by itself', () => {
  const forever = kernel({ name: 'forever', params: { flags: pointer('u32') } }, (g, { flags }) => {
    while (g.load(flags.at(3), { order: 'relaxed', scope: 'gpu' }) === 0) g.sleep(1);
  });
  const together = kernel({ name: 'together', params: { flags: pointer('u32') } }, (g, { flags }) => {
    let seen = false;
    while (!seen) seen = g.warp.any(g.load(flags.at(3), { order: 'acquire', scope: 'gpu' }) !== 0);
  });
  const adding = kernel({ name: 'adding', params: { flags: pointer('u32') } }, (g, { flags }) => {
    while (g.atomicAdd(flags.at(3), 0, { order: 'acquire', scope: 'gpu' }) === 0) g.sleep(1);
  });
  const storing = kernel({ name: 'storing', params: { flags: pointer('u32') } }, (g, { flags }) => {
    while (g.load(flags.at(3), { order: 'relaxed', scope: 'gpu' }) === 0)
      g.store(flags.at(2), 7, { order: 'release', scope: 'gpu' });
  });
  const glancing = kernel({ name: 'glancing', params: { flags: pointer('u32') } }, (g, { flags }) => {
    while (g.load(flags.at(3)) === 0) g.sleep(1);
  });
  const waiting = kernel(
    { name: 'waiting', params: { flags: pointer('u32'), limit: 'u32' } },
    (g, params) => {
      const flag = params.flags.at(3);
      while (!g.awaitEpoch(flag, 1, { order: 'acquire', scope: 'gpu', limit: params.limit })) g.sleep(1);
    },
  );
  const endless = kernel({ name: 'endless', params: { flags: pointer('u32') } }, (g, { flags }) => {
    let sum = g.u32(0);
    while (g.load(flags.at(sum % 4)) === 0) sum += 1;
    g.store(flags, sum);
  });
  const limited = kernel(
    { name: 'limited', params: { flags: pointer('u32'), out: pointer('u32') } },
    (g, { flags, out }) => {
      const end = g.clock() + g.u64(1_000_000_000);
      let seen = g.u32(0);
      let now = g.clock();
      while (seen === 0 && now < end) {
        seen = g.load(flags.at(3), { order: 'relaxed', scope: 'gpu' });
        now = g.clock();
      }
      g.store(out, seen + 7);
    },
  );

  async function run(
    module: ReturnType<typeof forever.ir>,
    options: { block?: number; out?: boolean; limit?: number } = {},
  ) {
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked' });
    const flags = rank.device.allocateWindow(16, 'flags');
    const out = rank.device.allocateWindow(4, 'out');
    const { block = 1, limit } = options;
    const args = { flags, ...(options.out && { out }), ...(limit !== undefined && { limit }) };
    await launch(rank, module, { block }, args);
    return { machine, rank, out };
  }

  it.each([
    ['forever', forever, { block: 1 }],
    ['together', together, { block: 32 }],
    ['adding', adding, {}],
    ['storing', storing, {}],
    ['glancing', glancing, {}],
    ['waiting', waiting, { limit: 0 }],
    ['waiting', waiting, { limit: 9 }],
  ] as const)('is named when nobody will end it: %s %#', async (name, kernel, how) => {
    const { machine, rank } = await run(kernel.ir(), how);
    await expect(rank.stream.synchronize()).rejects.toThrow(/have no limit/);
    expect(machine.findings.map((f) => f.kind)).toEqual(['stuck-wait']);
    const text = formatFinding(machine.findings[0]!);
    expect(text).toMatch(/waits\.test\.ts:\d+:\d+ {2}g\.(load|atomicAdd|awaitEpoch)\(flag/);
    expect(text).toContain(`by ${name} on rank 0, block 0, thread 0`);
    expect(text).toMatch(/flags of rank 0, byte 12 is 0, wanted (something else|at least 1)/);
    expect(machine.statistics.steps).toBeLessThan(3_000_000);
  });

  it('that lets nobody else run is named as well', async () => {
    const { rank } = await run(endless.ir());
    await expect(rank.stream.synchronize()).rejects.toThrow(
      /endless failed on rank 0 in block 0, thread 0: the loop at .*waits\.test\.ts:\d+:5 has no end/,
    );
  });

  it('ends at its own limit of time', async () => {
    const { machine, rank, out } = await run(limited.ir(), { out: true });
    expect([...new Uint32Array(await download(rank, out))]).toEqual([7]);
    expect(machine.findings.map((f) => f.kind)).toEqual(['stuck-wait']);
  });

  it('is left alone while a host may still end it', async () => {
    const { machine } = await run(forever.ir());
    machine.hostEntered(0);
    const before = machine.statistics.steps;
    while (machine.statistics.steps < before + 300_000) await new Promise((resolve) => setImmediate(resolve));
    expect(machine.findings).toEqual([]);
    machine.kill(0);
  });
});

it('the machine gives up on a loop that never ends', async () => {
  const busy = kernel({ name: 'busy', params: { count: pointer('u32') } }, (g, { count }) => {
    while (g.load(count, { order: 'relaxed', scope: 'gpu' }) !== 0xffffffff) {
      g.atomicAdd(count, 2, { order: 'relaxed', scope: 'gpu' });
    }
  });
  const { machine, ranks } = machineOf({ ranks: 1, mode: 'checked', stepLimit: 5000 });
  const count = ranks[0]!.device.allocateWindow(4, 'count');
  await launch(ranks[0]!, busy.ir(), one, { count });
  await expect(ranks[0]!.stream.synchronize()).rejects.toThrow(/no end in sight/);
  expect(machine.findings.map((f) => f.kind)).toEqual(['failure']);
});

it('a machine refuses what it cannot be', () => {
  expect(() => SimMachine.create({ ranks: 0 })).toThrow(/ranks is 0/);
  expect(() => SimMachine.create({ ranks: 129 })).toThrow(/from 1 to 128/);
  expect(() => SimMachine.create({ ranks: 1, schedule: 'fair' as 'random' })).toThrow(/schedule is "fair"/);
  expect(() => SimMachine.create({ ranks: 1 }).device(1)).toThrow(/rank is 1/);
});
