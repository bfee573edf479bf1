/** What kernels send over a network themselves: right protocols, which stay silent, and ones that lack an edge. */
import { describe, expect, it } from 'vitest';
import { type Finding, formatFinding, type MachineOptions } from '../../../src/gpu/sim/index.js';
import { field, foreign, kernel, layout, peers, pointer, type TwinGpu } from '../../../src/lang/index.js';
import { download, launch, machineOf, schedules, windowsOf } from './harness.js';

const rounds = 4;
/** Words of a row: enough to be cut, also in halves. */
const width = 24;

const Post = layout('post', {
  leaving: field('u32', [2, width]),
  arriving: field('u32', [2, width]),
  came: field('u64', [1]),
});

const put = foreign(
  {
    name: 'net_put',
    params: { to: pointer('u8'), from: pointer('u8'), bytes: 'u32' },
    effects: { reads: ['from'], writes: ['to'] },
  },
  (g, { to, from, bytes }) => g.network.put(to, from, bytes),
);

const signalAs = (order: 'release' | 'relaxed', how: 'set' | 'add') =>
  foreign(
    {
      name: 'net_signal',
      params: { word: pointer('u64'), value: 'u32' },
      using: { ORDER: order, HOW: how },
      effects: { writes: ['word'], orders: order === 'release' ? ['release.sys'] : [] },
    },
    (g, { word, value }, u) => g.network.signal(word, g.u64(value), u.HOW, { order: u.ORDER, scope: 'sys' }),
  );

interface Protocol {
  /** How many rounds have places of their own. */
  readonly places: 1 | 2;
  readonly order: 'release' | 'relaxed';
  /** A round is told, or one more. */
  readonly how: 'set' | 'add';
  /** Two lanes put half a row each: whether they meet before one of them signals. */
  readonly meet: boolean;
}
const right: Protocol = { places: 2, order: 'release', how: 'set', meet: true };

/** Two ranks send each other a row a round, await the other's, and add up what came. */
const exchange = ({ places, order, how, meet }: Protocol) =>
  kernel(
    {
      name: 'exchange',
      params: { win: peers(Post), sum: pointer('u32'), limit: 'u32' },
      using: { rounds, places, width, put, signal: signalAs(order, how), ADDS: how === 'add', meet },
    },
    (g, { win, sum, limit }, u) => {
      const mine = win.at(g.rank);
      const there = win.at(1 - g.rank);
      const half = u.width / 2;
      for (let round = g.u32(1); round <= u.rounds; round++) {
        const place = round % u.places;
        if (g.laneId < 2) {
          const start = g.laneId * half;
          for (let i = g.u32(0); i < half; i++)
            g.store(mine.leaving.at(place, start + i), round * (10 + g.rank));
          const from = mine.leaving.at(place, start).as('u8');
          u.put({ to: there.arriving.at(place, start).as('u8'), from, bytes: half * 4 });
        }
        if (u.meet) g.warp.barrier();
        if (g.laneId === 0) u.signal({ word: there.came.at(0), value: u.ADDS ? 1 : round });
        g.awaitEpoch(mine.came.at(0), round, { order: 'acquire', scope: 'sys', limit });
        if (g.laneId === 0) {
          for (let i = g.u32(0); i < u.width; i++)
            g.store(sum, g.load(sum) + g.load(mine.arriving.at(place, i)));
        }
        g.warp.barrier();
      }
    },
  );

/** Rank 0 puts a row to rank 1 and tells rank 2, which tells rank 1. */
const relayed = kernel(
  {
    name: 'relayed',
    params: { win: peers(Post), sum: pointer('u32'), limit: 'u32' },
    using: { width, put, signal: signalAs('release', 'set') },
  },
  (g, { win, sum, limit }, u) => {
    if (g.laneId > 0) return;
    const mine = win.at(g.rank);
    if (g.rank === 0) {
      for (let i = g.u32(0); i < u.width; i++) g.store(mine.leaving.at(0, i), 1);
      const from = mine.leaving.at(0, 0).as('u8');
      u.put({ to: win.at(1).arriving.at(0, 0).as('u8'), from, bytes: u.width * 4 });
      u.signal({ word: win.at(2).came.at(0), value: 1 });
    } else {
      g.awaitEpoch(mine.came.at(0), 1, { order: 'acquire', scope: 'sys', limit });
      if (g.rank === 2) u.signal({ word: win.at(1).came.at(0), value: 1 });
      else g.store(sum, g.load(mine.arriving.at(0, 3)));
    }
  },
);

async function play(module: ReturnType<typeof exchange>, options: MachineOptions) {
  const { machine, ranks } = machineOf(options);
  const windows = await windowsOf(ranks, Post.bytes, 'post');
  const sums = await Promise.all(
    ranks.map(async (rank) => {
      const sum = rank.device.allocate(4, 'sum');
      rank.stream.fill(sum.address, 4, 0);
      await launch(rank, module.ir(), {}, { win: windows[rank.rank]!, sum, limit: 10_000_000 });
      return new Uint32Array(await download(rank, sum))[0];
    }),
  );
  return { findings: machine.findings, sums };
}

/** What is found in so many schedules. */
async function findings(module: ReturnType<typeof exchange>, ranks = 2, count = 12): Promise<Finding[]> {
  const all: Finding[] = [];
  for (const how of schedules(count))
    all.push(...(await play(module, { ranks, mode: 'checked', ...how })).findings);
  return all;
}

const sums = [10 * width * 11, 10 * width * 10];
const network = expect.objectContaining({
  kernel: 'the network',
  text: expect.stringContaining('network.put'),
});
const theKernel = expect.objectContaining({ kernel: 'exchange' });

describe('what kernels put', () => {
  it.each(['set', 'add'] as const)('arrives, and signals that %s say so', async (how) => {
    expect(await play(exchange({ ...right, how }), { ranks: 2 })).toEqual({ findings: [], sums });
    for (const schedule of schedules(30)) {
      const played = await play(exchange({ ...right, how }), { ranks: 2, mode: 'checked', ...schedule });
      expect(played.findings.map(formatFinding)).toEqual([]);
      expect(played.sums).toEqual(sums);
    }
  });

  it('may still be read when the next round writes its source: one place for all rounds races', async () => {
    const races = await findings(exchange({ ...right, places: 1 }));
    const overwritten = races.find(
      (race) => race.kind === 'race' && race.location.startsWith('leaving') && race.first.kind === 'read',
    );
    expect(overwritten).toMatchObject({ kind: 'race', first: network, second: theKernel });
  });

  it.each([
    ['a signal that is no release', { order: 'relaxed' }],
    ['a signal of a lane that has not met the one that put', { meet: false }],
  ] as const)('has not come with %s', async (_, wrong) => {
    const races = await findings(exchange({ ...right, ...wrong }));
    expect(races).toContainEqual(
      expect.objectContaining({
        kind: 'race',
        location: expect.stringContaining('arriving'),
        first: network,
        second: theKernel,
      }),
    );
  });

  it('has not come with a signal to another rank: order is between two ranks', async () => {
    const races = await findings(relayed, 3);
    expect(races).toContainEqual(
      expect.objectContaining({ kind: 'race', location: expect.stringContaining('arriving') }),
    );
  });

  it('stays within its window', async () => {
    const beyond = kernel(
      { name: 'beyond', params: { win: peers(Post), sum: pointer('u32'), limit: 'u32' }, using: { put } },
      (g, { win }, u) => {
        const from = win.at(g.rank).leaving.at(0, 0).as('u8');
        if (g.threadIdx.x === 0)
          u.put({
            to: win
              .at(1 - g.rank)
              .came.at(0)
              .as('u8'),
            from,
            bytes: 4096,
          });
      },
    );
    const found = await findings(beyond, 2, 1);
    expect(found).toContainEqual(expect.objectContaining({ kind: 'out-of-bounds', buffer: 'post' }));
  });
});

it('stands in twins alone', () => {
  const bare = kernel({ name: 'bare', params: { win: peers(Post) } }, (g, { win }) => {
    const to = win.at(1).arriving.at(0, 0).as('u8');
    (g as TwinGpu).network.put(to, win.at(0).leaving.at(0, 0).as('u8'), 16);
  });
  expect(() => bare.ir()).toThrow(/HK705 g\.network\.put stands in the twin of a foreign function only/);
});
