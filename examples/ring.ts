/**
 * A ring: every rank hands a row to its right-hand neighbour and takes one from its left, round after round. The
 * smallest kernel that has everything that dispatch and combine have: a window, two flags, and a place that is used again.
 * docs/first-kernel.md explains it step by step.
 */
import { pathToFileURL } from 'node:url';
import { World } from 'heddle';
import { configuration, WrongResult } from 'heddle/check';
import { field, kernel, layout, peers, pointer } from 'heddle/lang';

/** Elements of a row, one for each thread. */
export const width = 32;

export const ringWindow = layout('ring window', {
  /** Rounds that this rank has finished: read and written by its own launches, which follow each other. */
  rounds: field('u32', 1),
  /** The round whose row is in `row`; the left neighbour says so. It only grows. */
  arrived: field('u32', 1),
  /** The round whose row the right neighbour has taken from its window; it says so here. It only grows. */
  taken: field('u32', 1),
  /** Set when a neighbour did not come in time. */
  lost: field('u32', 1),
  /** Written by the left neighbour. Free for the next round because that waits for `taken`. */
  row: field('u32', width),
});

export const ring = (ranks: number) =>
  kernel(
    {
      name: 'ring',
      params: { win: peers(ringWindow), from: pointer('u32'), to: pointer('u32'), limit: 'u32' },
      using: { RANKS: ranks },
    },
    (g, { win, from, to, limit }, { RANKS }) => {
      const mine = win.at(g.rank);
      const right = win.at((g.rank + 1) % RANKS);
      const left = win.at((g.rank + RANKS - 1) % RANKS);
      const i = g.threadIdx.x;
      const epoch = g.load(mine.rounds) + 1;

      // The neighbour has taken the row of the last round: its place may be overwritten.
      if (i === 0) {
        const free = g.awaitEpoch(mine.taken, epoch - 1, { order: 'acquire', scope: 'sys', limit });
        if (!free) g.store(mine.lost, 1);
      }
      g.barrier();
      g.store(right.row.at(i), g.load(from.at(i)));

      // The barrier puts the stores of all threads before the release of one.
      g.barrier();
      if (i === 0) {
        g.store(right.arrived, epoch, { order: 'release', scope: 'sys' });
        const came = g.awaitEpoch(mine.arrived, epoch, { order: 'acquire', scope: 'sys', limit });
        if (!came) g.store(mine.lost, 1);
      }
      g.barrier();
      g.store(to.at(i), g.load(mine.row.at(i)));

      // Likewise: the loads of all threads before the word that they are done.
      g.barrier();
      if (i === 0) {
        g.store(left.taken, epoch, { order: 'release', scope: 'sys' });
        g.store(mine.rounds, epoch);
      }
    },
  );

/** One rank's program: after n rounds it holds the row of the rank n places to its left. */
export async function pass(world: World, rounds: number): Promise<Uint32Array> {
  const { device, rank, ranks } = world;
  const window = await world.createWindow(ringWindow.bytes, 'ring window');
  const rows = [device.allocate(4 * width, 'a row'), device.allocate(4 * width, 'another row')] as const;
  const stream = device.createStream();
  stream.copyIn(
    rows[0].address,
    new Uint8Array(Uint32Array.from({ length: width }, (_, i) => 100 * rank + i).buffer),
  );

  const program = await device.load(ring(ranks).ir());
  const launcher = program.launcher({ grid: 1, block: width, rank });
  launcher.setWindow('win', window);
  launcher.set('limit', 10_000_000); // microseconds
  for (let round = 0; round < rounds; round++) {
    launcher.set('from', rows[round % 2]!.address);
    launcher.set('to', rows[(round + 1) % 2]!.address);
    launcher.launch(stream);
  }

  const result = await stream.copyOut(rows[rounds % 2]!.address, 4 * width);
  await world.barrier(); // a neighbour may still write into this window
  window.close();
  return new Uint32Array(result.buffer, result.byteOffset, width);
}

/** Several rounds back to back, so that a place is used again while others may still read it. */
const several = (ranks: number, rounds: number) =>
  configuration(`ring of ${ranks}`, { ranks }, async (world) => {
    const row = await pass(world, rounds);
    const from = (((world.rank - rounds) % ranks) + ranks) % ranks;
    const wrong = row.findIndex((value, i) => value !== 100 * from + i);
    if (wrong >= 0) throw new WrongResult(`rank ${world.rank}: element ${wrong} is ${row[wrong]}`);
  });
export const configurations = [several(2, 3), several(3, 4), several(1, 2)];

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const rows = await World.local({ ranks: 4 }, (world) => pass(world, 3));
  for (const [rank, row] of rows.entries())
    console.log(`rank ${rank} holds the row that began with ${row[0]}`);
}
