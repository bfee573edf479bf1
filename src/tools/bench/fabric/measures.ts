/**
 * The measurements of a provider: one write and one call between two processes, by the engine and from C; then what many
 * processes do together, and what the engine does after a long time.
 */
import { availableParallelism } from 'node:os';
import { flagToFlag } from './flags.js';
import { allToAllRanks, type Measurements, mebibyte, scatterPeers, type Thread } from './measurements.js';
import type { StreamArgs, steady } from './roles.js';

/** Latency, rate, bandwidth, and what a call takes of its caller. */
export async function measureCalls(bench: Measurements, thread: Thread): Promise<void> {
  const { provider } = bench.of;
  const by = `${thread} thread`;
  const n = bench.count(thread === 'caller' ? 20_000 : 2_000);
  await bench.compare(thread, {
    what: `latency of an 8-byte write, ${by}`,
    unit: 'µs',
    how: `half a round trip of writes with an immediate, p50 of ${n}`,
    ...{ role: 'pingPong', mode: 'latency' },
    sizes: { bytes: 8, window: 1, count: n },
    sizesOfC: { bytes: 8, window: 1, count: bench.count(20_000) },
  });
  const messages = bench.count(100_000);
  await bench.compare(thread, {
    what: `rate of 8-byte writes, ${by}`,
    unit: 'million/s',
    how: `${messages} writes with an immediate, 128 under way`,
    ...{ role: 'stream', mode: 'stream' },
    sizes: { bytes: 8, window: 128, count: messages },
    figure: (seconds) => messages / seconds / 1e6,
  });
  // A second or so: a pause of a few milliseconds, which is not ours, then changes little.
  const large = bench.count(provider === 'udp;ofi_rxd' ? 1_000 : 10_000);
  await bench.compare(thread, {
    what: `bandwidth of 1 MiB writes, ${by}`,
    unit: 'GB/s',
    how: `${large} writes with an immediate, 16 under way`,
    ...{ role: 'stream', mode: 'stream' },
    sizes: { bytes: mebibyte, window: 16, count: large },
    figure: (seconds) => (large * mebibyte) / seconds / 1e9,
  });
  // shm takes one small write at a time from an endpoint, so only there a batch is one.
  const batch = provider === 'shm' ? 1 : 16;
  const posts = bench.count(5_000);
  const call =
    thread === 'caller' ? "the call, which makes libfabric's" : 'the call, which hands over to the thread';
  await bench.compare(thread, {
    what: `posting an 8-byte write, ${by}`,
    unit: 'µs',
    how: `${call}, in batches of ${batch}, p50 of ${posts}`,
    ...{ role: 'posting', mode: 'post' },
    sizes: { bytes: 8, window: batch, count: posts },
  });
  const scatters = bench.count(1_000);
  await bench.compare(thread, {
    what: `posting a scatter to ${scatterPeers} peers, ${by}`,
    unit: 'µs',
    how: `the call, 64 bytes to each of ${scatterPeers} engines in another process, p50 of ${scatters}; C: ${scatterPeers} calls of libfabric`,
    ...{ role: 'scatterCall', mode: 'scatter' },
    sizes: { bytes: 64, window: scatterPeers, count: scatters },
  });
}

/** At one token: what its message takes by the engine, and from flag to flag by proxies, which are callers too. */
export async function measureFlags(bench: Measurements): Promise<void> {
  const { provider, device } = bench.of;
  const bytes = 2048;
  const trips = bench.count(20_000);
  await bench.compare('caller', {
    what: `latency of a ${bytes}-byte write, caller thread`,
    unit: 'µs',
    how: `half a round trip of writes with an immediate, p50 of ${trips}`,
    role: 'pingPong',
    sizes: { bytes, window: 1, count: trips },
  });
  // Two proxies and who raises the flags spin: with fewer processors it would be the system's time slices that are measured.
  if (availableParallelism() < 3) return;
  await bench.measure({
    what: `flag to flag of a ${bytes}-byte message, by proxies`,
    unit: 'µs',
    how: `half a round trip between two proxies of one process, host memory, no GPU, p50 of ${trips}`,
    ours: () => flagToFlag({ provider, devices: [device], timeoutMs: 60_000 }, bytes, trips, trips),
  });
}

/** Each process to each other one: a slice, and a barrier. */
export async function measureRounds(bench: Measurements, ranks: number): Promise<void> {
  const n = bench.count(300);
  const args: StreamArgs = { options: bench.engine('worker'), bytes: 16_384, window: 1, count: n };
  /** Of each repetition. */
  const barriers: number[] = [];
  await bench.measure({
    what: `scatter among ${ranks} processes`,
    unit: 'µs',
    how: `16 KiB to each other process until theirs have landed, p50 of ${n}`,
    ours: async () => {
      const [first] = await bench.roles<{ scatter: number; barrier: number }>('rounds', ranks, args);
      barriers.push(first!.barrier);
      return first!.scatter;
    },
  });
  await bench.measure({
    what: `barrier among ${ranks} processes`,
    unit: 'µs',
    how: `an immediate to each other process until theirs have landed, p50 of ${n}, of the same runs`,
    ours: async () => barriers.shift()!,
  });
}

/** The memory that so many writes leave behind: on the heap, in memory, and of themselves. */
export async function measureSteadyState(bench: Measurements): Promise<void> {
  bench.progress('steady state …');
  const operations = bench.count(1_000_000);
  const args: StreamArgs = { options: bench.engine('caller'), bytes: 16_384, window: 1, count: operations };
  const [sender, receiver] = await bench.roles<Awaited<ReturnType<typeof steady>>>('steady', 2, args);
  const how = `${operations} writes of 8 bytes after as many, caller thread`;
  const { heapBytesPerOperation: heap, collections } = sender!;
  const growth = (sender!.residentAfter - sender!.residentBefore) / mebibyte;
  const all = 2 * operations;
  const missed = all - sender!.completed + (all - (receiver!.landed + all));
  const facts = [
    ['heap allocated per operation', 'B', heap],
    ['garbage collections', '', collections],
    ['growth of resident memory', 'MiB', growth],
    ['missed completions and arrivals', '', missed],
  ] as const;
  for (const [what, unit, heddle] of facts) bench.fact({ what, unit, heddle, how });
}

/** Everybody to everybody, and every byte looked at: a wrong one ends the measurement. */
export async function measureAllToAll(bench: Measurements): Promise<void> {
  const [ranks, slice, rounds] = [allToAllRanks, 131_072, 200];
  bench.progress(`all-to-all of ${ranks} processes …`);
  const begun = performance.now();
  const args = { options: bench.engine('worker'), slice, rounds };
  await bench.roles('allToAll', ranks, args);
  bench.fact({
    what: 'all-to-all, every byte checked',
    unit: 's',
    heddle: (performance.now() - begun) / 1000,
    how: `${ranks} processes, ${rounds} rounds of ${slice}-byte slices, with starting them`,
  });
}
