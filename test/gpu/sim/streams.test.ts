import { describe, expect, it } from 'vitest';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { kernel, pointer } from '../../../src/lang/index.js';
import { download, launch, machineOf, type Rank } from './harness.js';

/** Appends `value` to a log: log[0] counts. */
const append = kernel(
  { name: 'append', params: { log: pointer('u32'), value: 'u32' } },
  (g, { log, value }) => {
    const at = g.atomicAdd(log, 1, { order: 'relaxed', scope: 'sys' });
    g.store(log.at(1 + at), value);
  },
);

/** Waits for a word to come to `epoch`, then appends. */
const appendAfter = kernel(
  { name: 'append_after', params: { flag: pointer('u32'), epoch: 'u32', log: pointer('u32'), value: 'u32' } },
  (g, { flag, epoch, log, value }) => {
    g.awaitEpoch(flag, epoch, { order: 'acquire', scope: 'sys', limit: 1000 });
    const at = g.atomicAdd(log, 1, { order: 'relaxed', scope: 'sys' });
    g.store(log.at(1 + at), value);
  },
);

function zeroed(rank: Rank, words: number, purpose: string) {
  const memory = rank.device.allocate(words * 4, purpose);
  rank.stream.fill(memory.address, memory.bytes, 0);
  return memory;
}

const one = { block: 1 };

describe.each(['fast', 'checked'] as const)('on a %s machine', (mode) => {
  async function logOf(rank: Rank, log: { address: number; bytes: number }): Promise<number[]> {
    const [count, ...values] = new Uint32Array(await download(rank, log));
    return values.slice(0, count);
  }

  it('an event holds another stream back until it was recorded', async () => {
    const { machine, rank } = machineOf({ ranks: 1, mode, seed: '5' });
    const other = rank.device.createStream();
    const [start, middle] = [rank.device.createEvent(), rank.device.createEvent()];
    const log = zeroed(rank, 8, 'log');
    rank.stream.record(start);
    other.wait(start);
    await launch(rank, append.ir(), one, { log, value: 1 });
    rank.stream.record(middle);
    other.wait(middle);
    await launch(rank, append.ir(), one, { log, value: 2 }, other);
    await other.synchronize();
    await rank.stream.synchronize();
    expect(await logOf(rank, log)).toEqual([1, 2]);
    expect(middle.elapsedSince(start)).toBeGreaterThan(0);
    expect(machine.findings).toEqual([]);
  });

  it('two streams of one rank run at the same time', async () => {
    const { rank } = machineOf({ ranks: 1, mode });
    const other = rank.device.createStream();
    const log = zeroed(rank, 8, 'log');
    const flag = zeroed(rank, 1, 'flag');
    await rank.stream.synchronize();
    await launch(rank, appendAfter.ir(), one, { flag, epoch: 1, log, value: 1 });
    await launch(rank, append.ir(), one, { log: { ...flag, address: flag.address }, value: 7 }, other).catch(
      () => {},
    );
    await rank.stream.synchronize();
    expect(await logOf(rank, log)).toEqual([1]);
  });

  it('a graph replays what was captured, with the parameters of that time', async () => {
    const { ranks, rank } = machineOf({ ranks: 2, mode });
    const log = zeroed(rank, 16, 'log');
    const program = await rank.device.load(append.ir());
    const launcher = program.launcher({ grid: 1, block: 1, rank: 0 });
    launcher.set('log', log.address);
    rank.stream.beginCapture();
    for (const value of [1, 2]) {
      launcher.set('value', value);
      launcher.launch(rank.stream);
    }
    const graph = rank.stream.endCapture();
    launcher.set('value', 9);
    expect(await logOf(rank, log)).toEqual([]);
    graph.launch(rank.stream);
    launcher.launch(rank.stream);
    graph.launch(rank.stream);
    expect(await logOf(rank, log)).toEqual([1, 2, 9, 1, 2]);
    expect(() => graph.launch(ranks[1]!.stream)).toThrow(/a stream of the simulated GPU #0/);
    graph.dispose();
    expect(() => graph.launch(rank.stream)).toThrow(/graph was disposed/);
  });

  it('what a graph cannot hold is refused while capturing', () => {
    const { rank } = machineOf({ ranks: 1, mode });
    expect(() => rank.stream.endCapture()).toThrow(/beginCapture/);
    rank.stream.beginCapture();
    expect(() => rank.stream.synchronize()).toThrow(/cannot be captured/);
    const before = rank.device.createEvent();
    rank.device.createStream().record(before);
    expect(() => rank.stream.wait(before)).toThrow(/cannot be captured/);
  });

  it('a graph holds what another stream captures that waits for its events', async () => {
    const { rank } = machineOf({ ranks: 1, mode });
    const log = zeroed(rank, 16, 'log');
    const program = await rank.device.load(append.ir());
    const launcher = program.launcher({ grid: 1, block: 1, rank: 0 });
    launcher.set('log', log.address);
    const beside = rank.device.createStream();
    const [fork, join] = [rank.device.createEvent(), rank.device.createEvent()];
    const add = (value: number, stream = rank.stream) => {
      launcher.set('value', value);
      launcher.launch(stream);
    };
    rank.stream.beginCapture();
    add(1);
    rank.stream.record(fork);
    beside.wait(fork);
    add(2, beside);
    beside.record(join);
    expect(() => rank.stream.endCapture()).toThrow(/another stream captures too/);
    rank.stream.wait(join);
    add(3);
    const graph = rank.stream.endCapture();
    for (let n = 0; n < 2; n++) graph.launch(rank.stream);
    expect(await logOf(rank, log)).toEqual([1, 2, 3, 1, 2, 3]);
    expect(() => beside.wait(fork)).toThrow(/in another capture/);
    add(4, beside); // it captures no longer
    expect(await logOf({ ...rank, stream: beside }, log)).toEqual([1, 2, 3, 1, 2, 3, 4]);
    rank.stream.beginCapture();
    expect(() => rank.stream.wait(fork)).toThrow(/in another capture/);
  });

  it('copies and fills take their turn', async () => {
    const { rank } = machineOf({ ranks: 1, mode });
    const a = rank.device.allocate(64, 'a');
    const b = rank.device.allocate(64, 'b');
    const data = Uint8Array.from({ length: 64 }, (_, i) => i);
    rank.stream.copyIn(a.address, data);
    data.fill(0);
    rank.stream.copy(b.address + 32, a.address, 32);
    rank.stream.fill(a.address, 64, 255);
    rank.stream.copy(b.address, a.address, 8);
    const got = new Uint8Array(await download(rank, b));
    expect([...got.slice(0, 8)]).toEqual(new Array(8).fill(255));
    expect([...got.slice(32)]).toEqual(Array.from({ length: 32 }, (_, i) => i));
  });

  it('a programmatic launch starts early, and awaitPrevious waits for the end of the one before', async () => {
    const first = kernel(
      { name: 'first', params: { flag: pointer('u32'), data: pointer('u32') } },
      (g, { flag, data }) => {
        g.releaseNext();
        // Only the next kernel sets the flag: this ends only if that one starts before this one is done.
        g.awaitEpoch(flag, 1, { order: 'acquire', scope: 'gpu', limit: 1000 });
        g.store(data, 42);
      },
    );
    const second = kernel(
      { name: 'second', params: { flag: pointer('u32'), data: pointer('u32'), out: pointer('u32') } },
      (g, { flag, data, out }) => {
        g.store(flag, 1, { order: 'release', scope: 'gpu' });
        g.awaitPrevious();
        g.store(out, g.load(data));
      },
    );
    for (const seed of ['1', '2', '3', '4']) {
      const { machine, rank } = machineOf({ ranks: 1, mode, seed });
      const [flag, data, out] = [zeroed(rank, 1, 'flag'), zeroed(rank, 1, 'data'), zeroed(rank, 1, 'out')];
      await launch(rank, first.ir(), one, { flag, data });
      await launch(rank, second.ir(), { block: 1, programmatic: true }, { flag, data, out });
      expect([...new Uint32Array(await download(rank, out))]).toEqual([42]);
      expect(machine.findings).toEqual([]);
      const [a, b] = [...machine.trace].sort((x, y) => x.launch - y.launch);
      expect(b!.start).toBeLessThan(a!.end);
    }
  });

  it('before awaitPrevious a kernel may prefetch what the one before still writes: that reads nothing', async () => {
    const first = kernel({ name: 'first', params: { data: pointer('u32') } }, (g, { data }) => {
      g.releaseNext();
      g.store(data, 42);
    });
    const second = kernel(
      { name: 'second', params: { data: pointer('u32'), out: pointer('u32') } },
      (g, { data, out }) => {
        g.prefetch(data);
        g.prefetch(data.at(1 << 20)); // beyond the buffer
        g.awaitPrevious();
        g.store(out, g.load(data));
      },
    );
    const { machine, rank } = machineOf({ ranks: 1, mode });
    const [data, out] = [zeroed(rank, 1, 'data'), zeroed(rank, 1, 'out')];
    await launch(rank, first.ir(), one, { data });
    await launch(rank, second.ir(), { block: 1, programmatic: true }, { data, out });
    expect([...new Uint32Array(await download(rank, out))]).toEqual([42]);
    expect(machine.findings).toEqual([]);
  });

  it('a launch after a programmatic one waits for all before it', async () => {
    const slow = kernel({ name: 'slow', params: { log: pointer('u32') } }, (g, { log }) => {
      g.releaseNext();
      for (let i = g.u32(0); i < 20; i++) g.sleep(10);
      g.atomicAdd(log, 1, { order: 'relaxed', scope: 'gpu' });
    });
    const { rank } = machineOf({ ranks: 1, mode });
    const log = zeroed(rank, 8, 'log');
    await launch(rank, slow.ir(), { block: 1 }, { log });
    await launch(rank, slow.ir(), { block: 1, programmatic: true }, { log });
    await launch(rank, append.ir(), one, { log, value: 5 });
    expect([...new Uint32Array(await download(rank, log))].slice(0, 4)).toEqual([3, 0, 0, 5]);
  });

  it('a kernel that fails tells the host at the next synchronisation, once', async () => {
    const bad = kernel({ name: 'bad', params: { out: pointer('u32') } }, (g, { out }) => {
      const gate = g.shared('u64', 1);
      g.mbarrier.await(gate, 0);
      g.store(out, 1);
    });
    const { rank } = machineOf({ ranks: 1, mode });
    const out = zeroed(rank, 1, 'out');
    await launch(rank, bad.ir(), one, { out });
    await expect(rank.stream.synchronize()).rejects.toThrow(
      /kernel bad failed on rank 0 in block 0, thread 0/,
    );
    await expect(rank.stream.synchronize()).resolves.toBeUndefined();
  });
});

it('memory freed under a copy that was enqueued before is an error that the host hears of', async () => {
  const { rank } = machineOf({ ranks: 1 });
  const [early, late] = [rank.device.allocate(64, 'early'), rank.device.allocate(64, 'late')];
  rank.stream.fill(early.address, 64, 1);
  early.free();
  await expect(rank.stream.synchronize()).rejects.toThrow(
    /'early' of rank 0 was freed .* synchronize before free/,
  );
  const read = rank.stream.copyOut(late.address, 64);
  late.free();
  await expect(read).rejects.toThrow(/'late' of rank 0 was freed/);
});

it('a stream that waits for an event of a killed rank is told, rather than left waiting', async () => {
  const { machine, ranks } = machineOf({ ranks: 2 });
  const [a, b] = ranks as [Rank, Rank];
  const event = a.device.createEvent();
  a.stream.record(event);
  b.stream.wait(event);
  machine.kill(0);
  await expect(b.stream.synchronize()).rejects.toThrow(/events that will never be recorded/);
});

it('a launch says what is wrong with it before anything runs', async () => {
  const { ranks } = machineOf({ ranks: 2 });
  const [a, b] = ranks as [Rank, Rank];
  const log = a.device.allocate(32, 'log');
  const program = await a.device.load(append.ir());
  expect(() => program.launcher({ grid: 0, block: 1, rank: 0 })).toThrow(/grid is 0/);
  expect(() => program.launcher({ grid: 1, block: 2048, rank: 0 })).toThrow(/block is 2048/);
  const launcher = program.launcher({ grid: 1, block: 1, rank: 0 });
  launcher.set('log', log.address);
  expect(() => launcher.launch(a.stream)).toThrow(/append needs value/);
  expect(() => launcher.set('value', -1)).toThrow(/value is -1/);
  expect(() => launcher.set('volume', 1)).toThrow(/a parameter of kernel append: log, value/);
  expect(() => launcher.set('log', log.address + 2)).toThrow(/a multiple of 4/);
  expect(() => launcher.set('log', 12345)).toThrow(/address of memory that was allocated on a device/);
  launcher.set('value', 1);
  expect(() => launcher.launch(b.stream)).toThrow(/a stream of the simulated GPU #0/);
  expect(() => a.stream.copyIn(log.address + 30, new Uint8Array(4))).toThrow(/within the 32 bytes of 'log'/);
  log.free();
  expect(() => a.stream.fill(log.address, 4, 0)).toThrow(/'log' was freed/);
  await a.device.dispose();
  expect(() => a.device.allocate(4, 'late')).toThrow(/disposed/);
});

it('a window of another machine cannot be opened', async () => {
  const [one, two] = [SimMachine.create({ ranks: 1 }), SimMachine.create({ ranks: 1 })];
  const window = one.device(0).allocateWindow(64, 'window');
  await expect(two.device(0).openWindow(window.handle)).rejects.toThrow(/same simulated machine/);
});

it('what a stream refuses is nothing that the machine believes to be awaited', async () => {
  const { machine, ranks } = machineOf({ ranks: 1, mode: 'checked' });
  const { device, stream } = ranks[0]!;
  const gone = device.createStream();
  gone.dispose();
  await expect(gone.synchronize()).rejects.toThrow(/the stream was disposed/);
  await stream.synchronize();
  for (let turn = 0; turn < 8; turn++) await new Promise(setImmediate);
  expect(machine.findings).toEqual([]);
});

describe('one host program of two GPUs', () => {
  /** Fills memory of both, then launches on each a kernel that changes the other's. */
  async function findings(awaits: (ranks: readonly Rank[]) => Promise<unknown>): Promise<string[]> {
    const { machine, ranks } = machineOf({ ranks: 2, mode: 'checked' });
    const logs = ranks.map(({ device }) => device.allocateWindow(16, 'log'));
    for (const { stream, rank } of ranks) stream.fill(logs[rank]!.address, 16, 0);
    await awaits(ranks);
    for (const rank of ranks) await launch(rank, append.ir(), one, { log: logs[1 - rank.rank]!, value: 1 });
    for (const { stream } of ranks) await stream.synchronize();
    return machine.findings.map(({ kind }) => kind);
  }

  it.each<[string, (ranks: readonly Rank[]) => Promise<unknown>]>([
    ['at once', (ranks) => Promise.all(ranks.map(({ stream }) => stream.synchronize()))],
    [
      'one after the other',
      async (ranks) => {
        for (const { stream } of ranks) await stream.synchronize();
      },
    ],
  ])('launches behind what it has awaited of both, %s', async (_, awaits) => {
    expect(await findings(awaits)).toEqual([]);
  });

  it('does not launch behind what it has not awaited', async () => {
    expect(await findings(([first]) => first!.stream.synchronize())).toContain('race');
  });
});
