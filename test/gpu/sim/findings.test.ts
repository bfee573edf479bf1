import { describe, expect, it } from 'vitest';
import type { Memory } from '../../../src/gpu/index.js';
import { type Finding, formatFinding } from '../../../src/gpu/sim/index.js';
import { device, field, type IrModule, kernel, layout, peers, pointer } from '../../../src/lang/index.js';
import { type Arguments, download, launch, machineOf, type Rank, upload, windowsOf } from './harness.js';

/** Runs a kernel on one checked GPU; returns what was found. */
async function found(
  kernel: { ir(): IrModule },
  args: (rank: Rank) => Arguments,
  shape: { grid?: number; block?: number } = { block: 1 },
): Promise<readonly Finding[]> {
  const { machine, rank } = machineOf({ ranks: 1, mode: 'checked', configuration: 'alone', seed: '11' });
  await launch(rank, kernel.ir(), shape, args(rank));
  await rank.stream.synchronize();
  return machine.findings;
}

const copy = kernel(
  { name: 'copy', params: { to: pointer('u32'), from: pointer('u32'), at: 'i32' } },
  (g, { to, from, at }) => {
    g.store(to, g.load(from.at(at)));
  },
);

/** What accesses outside of a window's fields a kernel makes on a checked GPU; or the kind of another finding. */
async function outside(module: IrModule, bytes: number, args: Arguments): Promise<unknown[]> {
  const { machine, ranks, rank } = machineOf({ ranks: 1, mode: 'checked' });
  const [win] = await windowsOf(ranks, bytes);
  await launch(rank, module, { block: 1 }, { win: win!, ...args });
  await rank.stream.synchronize();
  return machine.findings.map((f) => (f.kind === 'out-of-bounds' ? `${f.buffer}, ${f.location}` : f.kind));
}

const words = (rank: Rank, count: number) => upload(rank, new Uint32Array(count), 'input');
const out = (rank: Rank): Memory => rank.device.allocate(16, 'output');

describe('an access out of bounds', () => {
  it('is found behind and before the buffer, and does not happen', async () => {
    for (const [at, range] of [
      [4, 'bytes 16 to 19 of 16'],
      [-1, 'bytes -4 to -1 of 16'],
      [0x40000000, 'bytes 4294967296 to 4294967299 of 16'],
    ] as const) {
      const findings = await found(copy, (rank) => ({ to: out(rank), from: words(rank, 4), at }));
      expect(findings).toHaveLength(1);
      expect(findings[0]).toMatchObject({
        kind: 'out-of-bounds',
        buffer: 'input',
        location: range,
        access: { kind: 'read', kernel: 'copy', rank: 0, block: 0, thread: 0 },
        seed: '11',
        configuration: 'alone',
      });
      const text = formatFinding(findings[0]!);
      expect(text).toContain(`Access out of bounds: input, ${range}`);
      expect(text).toMatch(/findings\.test\.ts:\d+:\d+ {2}g\.load\(from\.at\(at\)\)/);
      expect(text).toContain('read, weak, by copy on rank 0, block 0, thread 0');
      expect(text).toContain('alone/11');
    }
  });

  it('is found in shared memory, by the name of the array, also where another one begins', async () => {
    const beyond = kernel({ name: 'beyond', params: { to: pointer('u32') } }, (g, { to }) => {
      const tile = g.shared('u32', 8);
      const next = g.shared('u32', 8);
      g.store(next.at(0), 7);
      g.store(tile.at(g.threadIdx.x + 8), 1);
      g.store(to, g.load(next.at(0)));
    });
    const findings = await found(beyond, (rank) => ({ to: out(rank) }));
    expect(findings).toMatchObject([
      { kind: 'out-of-bounds', buffer: 'shared memory', location: 'tile, bytes 32 to 35 of 32' },
    ]);
  });

  it('is found in every dimension of a field, by name, and does not happen', async () => {
    const [sources, tokens, units] = [2, 8, 3];
    const rows = layout('Rows', {
      rows: field('u32', [sources, tokens, units], ['source', 'token', 'unit']),
      plain: field('u32', [sources, tokens]),
      after: field('u32', 1),
    });
    const reach = kernel(
      { name: 'reach', params: { win: peers(rows), source: 'u32', token: 'i32', unit: 'u32', far: 'u32' } },
      (g, { win, source, token, unit, far }) => {
        const mine = win.at(0);
        g.store(mine.rows.at(source, token, unit), 1);
        g.store(mine.rows.at(source, token).at(unit), 1, { order: 'release', scope: 'sys' });
        g.store(mine.plain.at(far, 0), 1);
        if (far < 2) g.store(mine.after, g.load(mine.rows.at(source, token, unit)));
      },
    );
    const at = (source: number, token: number, unit: number, far = 0) =>
      outside(reach.ir(), rows.bytes, { source, token, unit, far });
    expect(await at(1, 7, 2)).toEqual([]);
    // Each of these lies inside the window, most of them inside the field.
    expect(await at(0, 9, 0)).toEqual([
      'Rows, rows[source 0][token 9 of 8][unit 0]',
      'Rows, rows[source 0][token 9 of 8]',
      'Rows, rows[source 0][token 9 of 8][unit 0]',
    ]);
    expect(await at(1, 0, 3)).toEqual([
      'Rows, rows[source 1][token 0][unit 3 of 3]',
      'Rows, rows[…][…][unit 3 of 3]',
      'Rows, rows[source 1][token 0][unit 3 of 3]',
    ]);
    expect(await at(1, -1, 0)).toContain('Rows, rows[source 1][token -1 of 8]');
    expect(await at(0, 0, 0, 2)).toEqual(['Rows, plain[2 of 2][0]']);
  });

  it('is found where a pointer into a field goes on behind it: moved, widened, kept, or handed to a function', async () => {
    const rows = layout('Rows', {
      rows: field('u32', [4, 8]),
      bytes: field('u8', 20),
      after: field('u32', 64),
    });
    const put = device({ name: 'put', params: { to: pointer('u32'), at: 'u32' } }, (g, { to, at }) => {
      g.store(to.at(at), 1);
    });
    const reach = kernel(
      { name: 'reach', params: { win: peers(rows), way: 'u32', by: 'i32' }, using: { put } },
      (g, { win, way, by }, { put }) => {
        const mine = win.at(0);
        const last = mine.rows.at(3, 0);
        const wide = mine.bytes.at(0).as('v16');
        if (way === 0) g.store(mine.rows.at(3, 0).at(by), 1);
        else if (way === 1) g.store(last.at(by), 1);
        else if (way === 2) put({ to: last, at: g.u32(by) });
        else if (way === 3) g.store(wide.at(by), g.pack('u32', [1, 1, 1, 1]));
        else g.awaitEpoch(last.at(by), 0, { order: 'acquire', scope: 'sys', limit: 0 });
      },
    );
    const module = reach.ir();
    const at = (way: number, by: number) => outside(module, rows.bytes, { way, by });
    for (const way of [0, 1, 2, 4]) {
      expect(await at(way, 7)).toEqual([]);
      expect(await at(way, 8)).toEqual(['rows, bytes 128 to 131 of its 128, by a pointer into it']);
    }
    // It may leave its row, which it has been given without.
    expect(await at(0, -1)).toEqual([]);
    expect(await at(0, -25)).toEqual(['rows, bytes -4 to -1 of its 128, by a pointer into it']);
    expect(await at(3, 0)).toEqual([]);
    expect(await at(3, 1)).toEqual(['bytes, bytes 16 to 31 of its 20, by a pointer into it']);
  });

  it('is found at the window of a rank that does not exist', async () => {
    const Flags = layout('Flags', { arrived: field('u32', 4) });
    const far = kernel({ name: 'far', params: { win: peers(Flags), rank: 'u32' } }, (g, { win, rank }) => {
      g.store(win.at(rank).arrived, 1, { order: 'relaxed', scope: 'sys' });
    });
    const { machine, ranks } = machineOf({ ranks: 2, mode: 'checked' });
    const windows = await windowsOf(ranks, Flags.bytes);
    for (const rank of [2, 0xffffffff]) {
      await launch(ranks[0]!, far.ir(), { block: 1 }, { win: windows[0]!, rank });
    }
    await ranks[0]!.stream.synchronize();
    expect(machine.findings.map((f) => 'buffer' in f && f.buffer)).toEqual([
      'the window of a rank that does not exist',
    ]);
  });

  it('is found after the memory was freed', async () => {
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked' });
    const input = words(rank, 4);
    await rank.stream.synchronize();
    await launch(rank, copy.ir(), { block: 1 }, { to: out(rank), from: input, at: 0 });
    input.free();
    await rank.stream.synchronize();
    expect(machine.findings).toMatchObject([
      { kind: 'out-of-bounds', buffer: 'input', location: 'byte 0, after it was freed' },
    ]);
  });
});

it('a misaligned access is found', async () => {
  const skewed = kernel(
    { name: 'skewed', params: { to: pointer('u32'), from: pointer('u32') } },
    (g, { to, from }) => {
      g.store(to, g.lane(g.load(from.at(1).as('v16')), 'u32', 0));
    },
  );
  const findings = await found(skewed, (rank) => ({ to: out(rank), from: words(rank, 8) }));
  expect(findings).toMatchObject([
    { kind: 'misaligned', buffer: 'input', location: 'byte 4, not a multiple of 16 bytes' },
  ]);
});

describe('a read of memory that nobody wrote', () => {
  it('is found in device memory, to the byte', async () => {
    const findings = await found(copy, (rank) => {
      const from = rank.device.allocate(16, 'scratch');
      rank.stream.fill(from.address, 6, 0);
      return { to: out(rank), from, at: 1 };
    });
    expect(findings).toMatchObject([
      {
        kind: 'uninitialised-read',
        buffer: 'scratch',
        location: 'byte 6',
        access: { text: 'g.load(from.at(at))' },
      },
    ]);
  });

  it('is found in shared memory, by name and index', async () => {
    const early = kernel({ name: 'early', params: { to: pointer('u32') } }, (g, { to }) => {
      const gap = g.shared('u32', 3);
      const tile = g.shared('u32', 8);
      if (g.threadIdx.x !== 5) g.store(tile.at(g.threadIdx.x), 1);
      g.store(gap, 1);
      g.barrier();
      g.store(to.at(g.threadIdx.x), g.load(tile.at(g.threadIdx.x)));
    });
    const findings = await found(early, (rank) => ({ to: rank.device.allocate(32, 'output') }), { block: 8 });
    const uninitialised = findings.filter((f) => f.kind === 'uninitialised-read');
    expect(uninitialised).toMatchObject([{ location: 'tile[5]', access: { thread: 5 } }]);
  });

  it('is none where copies of odd sizes have written all of it', async () => {
    const findings = await found(copy, (rank) => {
      const from = rank.device.allocate(32, 'scratch');
      for (const [offset, bytes] of [
        [6, 4],
        [10, 4],
      ] as const)
        rank.stream.copyIn(from.address + offset, new Uint8Array(bytes));
      return { to: out(rank), from, at: 2 };
    });
    expect(findings).toEqual([]);
  });

  it('follows copies, and is over once something was written', async () => {
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked' });
    const from = rank.device.allocate(16, 'scratch');
    const moved = rank.device.allocate(16, 'moved');
    rank.stream.fill(from.address, 8, 1);
    rank.stream.copy(moved.address, from.address, 16);
    const to = out(rank);
    await launch(rank, copy.ir(), { block: 1 }, { to, from: moved, at: 1 });
    await rank.stream.synchronize();
    expect(machine.findings).toEqual([]);
    await launch(rank, copy.ir(), { block: 1 }, { to, from: moved, at: 2 });
    await rank.stream.synchronize();
    expect(machine.findings).toMatchObject([
      { kind: 'uninitialised-read', buffer: 'moved', location: 'byte 8' },
    ]);
  });

  it('is none in a window, unless it was poisoned', async () => {
    const Parts = layout('Parts', { flags: field('u32', 4), rows: field('u32', 8) });
    const look = kernel(
      { name: 'look', params: { win: peers(Parts), to: pointer('u32') } },
      (g, { win, to }) => {
        g.store(to, g.load(win.at(0).flags) + g.load(win.at(0).rows.at(2)));
      },
    );
    const findings: (readonly Finding[])[] = [];
    for (const poisoned of [false, true]) {
      const { machine, rank } = machineOf({ ranks: 1, mode: 'checked' });
      const window = rank.device.allocateWindow(Parts.bytes, 'window');
      if (poisoned) window.poison(Parts.fields[1]!.offset, 32);
      const win = { rank: 0, bases: [window.address], bytes: Parts.bytes };
      await launch(rank, look.ir(), { block: 1 }, { win, to: out(rank) });
      await rank.stream.synchronize();
      findings.push(machine.findings);
    }
    expect(findings).toMatchObject([[], [{ kind: 'uninitialised-read', location: 'rows[2]' }]]);
  });
});

describe('divergence', () => {
  it('is found where some threads have left before a barrier', async () => {
    const left = kernel({ name: 'left', params: { to: pointer('u32') } }, (g, { to }) => {
      if (g.threadIdx.x >= 6) return;
      g.barrier();
      g.store(to.at(g.threadIdx.x % 2), 1);
    });
    const findings = await found(left, (rank) => ({ to: out(rank) }), { block: 8 });
    const divergence = findings.find((f) => f.kind === 'divergence')!;
    expect(divergence).toMatchObject({
      present: [0, 1, 2, 3, 4, 5],
      absent: [6, 7],
      block: 0,
      rank: 0,
      kernel: 'left',
    });
    expect(formatFinding(divergence)).toContain('there: threads 0–5; missing: threads 6–7');
  });

  it('is found where threads wait at different barriers', async () => {
    const split = kernel({ name: 'split', params: { to: pointer('u32') } }, (g, { to }) => {
      if (g.threadIdx.x === 0) g.barrier();
      else g.barrier();
      g.store(to.at(g.threadIdx.x % 4), g.threadIdx.x);
    });
    const findings = await found(split, (rank) => ({ to: rank.device.allocate(16, 'output') }), { block: 4 });
    expect(findings).toMatchObject([{ kind: 'divergence', operation: 'a barrier of the block' }]);
  });

  it('is found where lanes miss an operation of their warp, and the kernel ends', async () => {
    const lanes = kernel({ name: 'lanes', params: { to: pointer('u32') } }, (g, { to }) => {
      if (g.threadIdx.x < 16) g.store(to, g.warp.ballot(true), { order: 'relaxed', scope: 'gpu' });
      g.barrier();
    });
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked' });
    const to = rank.device.allocate(4, 'output');
    await launch(rank, lanes.ir(), { block: 32 }, { to });
    expect([...new Uint32Array(await download(rank, to))]).toEqual([0xffff]);
    expect(machine.findings).toMatchObject([
      {
        kind: 'divergence',
        operation: 'an operation of the warp',
        present: Array.from({ length: 16 }, (_, i) => i),
        absent: Array.from({ length: 16 }, (_, i) => 16 + i),
      },
    ]);
  });
});

it('the same mistake, made a hundred times, is one finding', async () => {
  const findings = await found(copy, (rank) => ({ to: out(rank), from: words(rank, 4), at: 100 }), {
    grid: 4,
    block: 32,
  });
  expect(findings.filter((f) => f.kind === 'out-of-bounds')).toHaveLength(1);
});
