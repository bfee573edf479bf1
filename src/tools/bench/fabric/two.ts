/** What one write takes, and one call: between two processes, by the engine and from C. */
import { availableParallelism } from 'node:os';
import { flagToFlag } from './flags.js';
import type { Measurements } from './measurements.js';
import { mebibyte, scatterPeers } from './peers.js';
import type { StreamArgs } from './roles.js';

type Thread = 'caller' | 'worker';

const streamOf =
  (bench: Measurements, thread: Thread) =>
  (bytes: number, window: number, count: number): StreamArgs => ({
    options: bench.engine(thread),
    ...{ bytes, window, count },
  });

/** Latency, rate, bandwidth, and what a call takes of its caller. */
export async function measureCalls(bench: Measurements, thread: Thread): Promise<void> {
  await measureWrites(bench, thread);
  await measurePosting(bench, thread);
}

async function measureWrites(bench: Measurements, thread: Thread): Promise<void> {
  const { provider, device } = bench;
  const stream = streamOf(bench, thread);
  const seconds = async (args: StreamArgs) =>
    (await bench.roles<{ seconds: number }>('stream', 2, args))[0]!.seconds;
  const by = `${thread} thread`;
  const n = bench.count(thread === 'caller' ? 20_000 : 2_000);
  await bench.measure({
    what: `latency of an 8-byte write, ${by}`,
    unit: 'µs',
    how: `half a round trip of writes with an immediate, p50 of ${n}`,
    ours: async () => (await bench.roles<{ p50: number }>('pingPong', 2, stream(8, 1, n)))[0]!.p50,
    c: (raw) => raw.measure(provider, device, 'latency', 8, 1, bench.count(20_000)),
    ...(thread === 'caller' && {
      goal: { text: '≤ 1.5 × C', holds: (h: number, c: number) => h <= 1.5 * c, needsC: true },
    }),
  });
  const messages = bench.count(100_000);
  await bench.measure({
    what: `rate of 8-byte writes, ${by}`,
    unit: 'million/s',
    how: `${messages} writes with an immediate, 128 under way`,
    ours: async () => messages / (await seconds(stream(8, 128, messages))) / 1e6,
    c: async (raw) => messages / (await raw.measure(provider, device, 'stream', 8, 128, messages)) / 1e6,
  });
  // A second or so: a pause of a few milliseconds, which is not ours, then changes little.
  const large = bench.count(provider === 'udp;ofi_rxd' ? 1_000 : 10_000);
  const gigabytes = (seconds: number) => (large * mebibyte) / seconds / 1e9;
  await bench.measure({
    what: `bandwidth of 1 MiB writes, ${by}`,
    unit: 'GB/s',
    how: `${large} writes with an immediate, 16 under way`,
    ours: async () => gigabytes(await seconds(stream(mebibyte, 16, large))),
    c: async (raw) => gigabytes(await raw.measure(provider, device, 'stream', mebibyte, 16, large)),
    goal: { text: '≥ 0.95 × C', holds: (h, c) => h >= 0.95 * c, needsC: true },
  });
}

async function measurePosting(bench: Measurements, thread: Thread): Promise<void> {
  const { provider, device } = bench;
  const stream = streamOf(bench, thread);
  const by = `${thread} thread`;
  // shm takes one small write at a time from an endpoint, so only there a batch is one.
  const batch = provider === 'shm' ? 1 : 16;
  const posts = bench.count(5_000);
  const call =
    thread === 'caller' ? "the call, which makes libfabric's" : 'the call, which hands over to the thread';
  await bench.measure({
    what: `posting an 8-byte write, ${by}`,
    unit: 'µs',
    how: `${call}, in batches of ${batch}, p50 of ${posts}`,
    ours: async () =>
      (await bench.roles<{ microseconds: number }>('posting', 2, stream(8, batch, posts)))[0]!.microseconds,
    c: (raw) => raw.measure(provider, device, 'post', 8, batch, posts),
    goal: { text: '≤ C + 1 µs', holds: (h, c) => h <= c + 1, needsC: true },
  });
  const scatters = bench.count(1_000);
  const args = { ...stream(64, 1, scatters), peers: scatterPeers };
  await bench.measure({
    what: `posting a scatter to ${scatterPeers} peers, ${by}`,
    unit: 'µs',
    how: `the call, 64 bytes to each of ${scatterPeers} engines in another process, p50 of ${scatters}; C: ${scatterPeers} calls of libfabric`,
    ours: async () => (await bench.roles<{ call: number }>('scatterCall', 2, args))[0]!.call,
    c: (raw) => raw.measure(provider, device, 'scatter', 64, scatterPeers, scatters),
    goal: { text: '≤ 30 µs', holds: (h) => h <= 30 },
  });
}

/** At one token: what its message takes by the engine, and from flag to flag by proxies, which are callers too. */
export async function measureFlags(bench: Measurements): Promise<void> {
  const { provider, device } = bench;
  const bytes = 2048;
  const trips = bench.count(20_000);
  const args = streamOf(bench, 'caller')(bytes, 1, trips);
  const alone = await bench.measure({
    what: `latency of a ${bytes}-byte write, caller thread`,
    unit: 'µs',
    how: `half a round trip of writes with an immediate, p50 of ${trips}`,
    ours: async () => (await bench.roles<{ p50: number }>('pingPong', 2, args))[0]!.p50,
  });
  // Two proxies and who raises the flags spin: with fewer processors it would be the system's time slices that are measured.
  if (availableParallelism() < 3) return;
  await bench.measure({
    what: `flag to flag of a ${bytes}-byte message, by proxies`,
    unit: 'µs',
    how: `half a round trip between two proxies of one process, host memory, no GPU, p50 of ${trips}`,
    ours: () => flagToFlag({ provider, devices: [device], timeoutMs: 60_000 }, bytes, trips, trips),
    goal: { text: '≤ the write + 5 µs', holds: (h) => h <= alone + 5 },
  });
}
