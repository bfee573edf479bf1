import { describe, expect, it } from 'vitest';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { field, kernel, layout, peers, pointer } from '../../../src/lang/index.js';
import { download, launch, machineOf, upload, windowsOf } from './harness.js';

const modes = ['fast', 'checked'] as const;

/** out[i] = a[i] + b[i], over a grid of blocks. */
const add = kernel(
  {
    name: 'add',
    params: { a: pointer('u32'), b: pointer('u32'), out: pointer('u32'), count: 'u32' },
  },
  (g, { a, b, out, count }) => {
    for (let i = g.blockIdx.x * g.blockDim.x + g.threadIdx.x; i < count; i += g.gridDim.x * g.blockDim.x) {
      g.store(out.at(i), g.load(a.at(i)) + g.load(b.at(i)));
    }
  },
);

/** Each block turns its part of the row around, through shared memory. */
const reverse = kernel({ name: 'reverse', params: { data: pointer('u32') } }, (g, { data }) => {
  const tile = g.shared('u32', 64);
  const at = g.blockIdx.x * 64 + g.threadIdx.x;
  g.store(tile.at(g.threadIdx.x), g.load(data.at(at)));
  g.barrier();
  g.store(data.at(at), g.load(tile.at(63 - g.threadIdx.x)));
});

const Flags = layout('Flags', { arrived: field('u32', 8), value: field('v16', 8) });

/** Every rank gives every rank its number, then waits for all and adds up what it was given. */
const exchange = kernel(
  {
    name: 'exchange',
    params: { win: peers(Flags), out: pointer('u32'), epoch: 'u32', limit: 'u32' },
    using: { RANKS: 4 },
  },
  (g, { win, out, epoch, limit }, { RANKS }) => {
    const sums = g.shared('u32', RANKS);
    const peer = g.threadIdx.x;
    if (peer < RANKS) {
      const mine = g.rank + 1;
      g.store(win.at(peer).value.at(g.rank), g.pack('u32', [mine, mine * 10, mine * 100, epoch]));
      g.store(win.at(peer).arrived.at(g.rank), epoch, { order: 'release', scope: 'sys' });
      const there = g.awaitEpoch(win.at(g.rank).arrived.at(peer), epoch, {
        order: 'acquire',
        scope: 'sys',
        limit,
      });
      const got = g.load(win.at(g.rank).value.at(peer));
      g.store(sums.at(peer), there ? g.lane(got, 'u32', 0) + g.lane(got, 'u32', 2) : 0);
    }
    g.barrier();
    if (g.threadIdx.x === 0) {
      let sum = g.u32(0);
      for (let i = g.u32(0); i < RANKS; i++) sum += g.load(sums.at(i));
      g.store(out, sum);
    }
  },
);

describe.each(modes)('a %s machine', (mode) => {
  it('runs a grid of blocks over device memory', async () => {
    const { machine, ranks } = machineOf({ ranks: 1, mode });
    const [rank] = ranks as [(typeof ranks)[0]];
    const a = upload(
      rank,
      Uint32Array.from({ length: 100 }, (_, i) => i),
    );
    const b = upload(
      rank,
      Uint32Array.from({ length: 100 }, (_, i) => 4294967295 - 2 * i),
    );
    const out = rank.device.allocate(400, 'output');
    await launch(rank, add.ir(), { grid: 2, block: 32 }, { a, b, out, count: 100 });
    const sums = new Uint32Array(await download(rank, out));
    expect([...sums]).toEqual(Array.from({ length: 100 }, (_, i) => (4294967295 - i) >>> 0));
    expect(machine.findings).toEqual([]);
  });

  it('lets threads of a block meet and pass data through shared memory', async () => {
    const { machine, ranks } = machineOf({ ranks: 1, mode });
    const [rank] = ranks as [(typeof ranks)[0]];
    const data = upload(
      rank,
      Uint32Array.from({ length: 128 }, (_, i) => i),
    );
    await launch(rank, reverse.ir(), { grid: 2, block: 64 }, { data });
    const got = new Uint32Array(await download(rank, data));
    expect([...got]).toEqual(Array.from({ length: 128 }, (_, i) => (i < 64 ? 63 - i : 191 - i)));
    expect(machine.findings).toEqual([]);
  });

  it('lets ranks exchange data through their windows', async () => {
    const { machine, ranks } = machineOf({ ranks: 4, mode });
    const windows = await windowsOf(ranks, Flags.bytes);
    await Promise.all(
      ranks.map(async (rank) => {
        const out = rank.device.allocate(4, 'output');
        await launch(rank, exchange.ir(), {}, { win: windows[rank.rank]!, out, epoch: 1, limit: 1000 });
        expect([...new Uint32Array(await download(rank, out))]).toEqual([1010]);
      }),
    );
    expect(machine.findings).toEqual([]);
    expect(machine.statistics.launches).toBe(4);
    expect(machine.trace.map((entry) => entry.rank).sort()).toEqual([0, 1, 2, 3]);
  });
});

it('hosts that wait for something outside of a machine go on in the order in which they came', async () => {
  const machine = SimMachine.create({ ranks: 1 });
  const order: string[] = [];
  let come = (): void => {};
  const late = new Promise<void>((resolve) => {
    come = resolve;
  });
  const first = machine.standStill(late).then(() => order.push('first'));
  const failed = machine
    .standStill(Promise.reject(new Error('nothing there')))
    .catch(() => order.push('failed'));
  const last = machine.standStill(Promise.resolve()).then(() => order.push('last'));
  setImmediate(come);
  await Promise.all([first, failed, last]);
  expect(order).toEqual(['first', 'failed', 'last']);
});
