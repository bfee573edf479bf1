/** What many processes do together, and what the engine does after a long time. */
import type { Measurements } from './measurements.js';
import { allToAllRanks, mebibyte } from './peers.js';
import type { SteadyReport, StreamArgs } from './roles.js';

/** Each process to each other one: a slice, and a barrier. */
export async function measureRounds(bench: Measurements, ranks: number): Promise<void> {
  const n = bench.count(300);
  const args: StreamArgs = { options: bench.engine('worker'), bytes: 16_384, window: 1, count: n };
  let barrier = 0;
  await bench.measure({
    what: `scatter among ${ranks} processes`,
    unit: 'µs',
    how: `16 KiB to each other process until theirs have landed, p50 of ${n}`,
    ours: async () => {
      const [first] = await bench.roles<{ scatter: number; barrier: number }>('rounds', ranks, args);
      barrier = first!.barrier;
      return first!.scatter;
    },
  });
  await bench.measure({
    what: `barrier among ${ranks} processes`,
    unit: 'µs',
    how: `an immediate to each other process until theirs have landed, p50 of ${n}, of the same run`,
    ours: async () => barrier,
  });
}

/** What so many writes leave behind: on the heap, in memory, and of themselves. */
export async function measureSteadyState(bench: Measurements, operations: number): Promise<void> {
  bench.progress('steady state …');
  const args: StreamArgs = { options: bench.engine('caller'), bytes: 16_384, window: 1, count: operations };
  const [sender, receiver] = await bench.roles<SteadyReport>('steady', 2, args);
  const how = `${operations} writes of 8 bytes after as many, caller thread`;
  const { heapBytesPerOperation: heap, collections } = sender!;
  const growth = (sender!.residentAfter - sender!.residentBefore) / mebibyte;
  const all = 2 * operations;
  const missed = all - sender!.completed + (all - (receiver!.landed + all));
  const facts = [
    ['heap allocated per operation', 'B', heap, '< 1 B', heap < 1],
    ['garbage collections', '', collections, '0', collections === 0],
    ['growth of resident memory', 'MiB', growth, '< 8 MiB', growth < 8],
    ['missed completions and arrivals', '', missed, '0', missed === 0],
  ] as const;
  for (const [what, unit, heddle, goal, reached] of facts)
    bench.fact({ what, unit, heddle, goal, reached, how });
}

/** Everybody to everybody, and every byte looked at. */
export async function measureAllToAll(bench: Measurements): Promise<void> {
  const [ranks, slice, rounds] = [allToAllRanks, 131_072, 200];
  bench.progress(`all-to-all of ${ranks} processes …`);
  const begun = performance.now();
  const args = { options: bench.engine('worker'), slice, rounds };
  const checked = await bench.roles<{ bytesChecked: number }>('allToAll', ranks, args);
  const bytes = checked.reduce((sum, { bytesChecked }) => sum + bytesChecked, 0);
  const want = ranks * (ranks - 1) * slice * rounds;
  bench.fact({
    what: 'all-to-all, every byte checked',
    unit: 's',
    heddle: (performance.now() - begun) / 1000,
    goal: `${want} bytes right`,
    reached: bytes === want,
    how: `${ranks} processes, ${rounds} rounds of ${slice}-byte slices, with starting them`,
  });
}
