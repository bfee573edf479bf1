import { availableParallelism, cpus, loadavg } from 'node:os';
import { UnavailableError } from '../../errors/index.js';
import {
  type EngineOptions,
  libfabricVersion,
  listProviders,
  type ProviderName,
  requireShmSpace,
} from '../../fabric/index.js';
import { type Baseline, buildBaseline } from './baseline.js';
import { flagToFlag } from './flags.js';
import { runRanks } from './ranks.js';
import type { SteadyReport, StreamArgs } from './roles.js';

export interface FabricBenchOptions {
  readonly providers: readonly ProviderName[];
  readonly device: string | undefined;
  /** Processes of the scatter and barrier rounds. */
  readonly ranks: number;
  /** How often each measurement and its counterpart in C are repeated, in turns; the best counts. */
  readonly repeat: number;
  /** Scales how much each measurement does; 1 takes two to five minutes a provider. */
  readonly scale: number;
  /** Writes of the steady-state measurement. */
  readonly operations: number;
  /** Also the all-to-all of 16 processes, every byte checked. */
  readonly allToAll: boolean;
  readonly progress: (line: string) => void;
}

/** One figure. */
export interface Figure {
  readonly provider: ProviderName;
  readonly what: string;
  readonly unit: string;
  readonly heddle: number;
  /** The same in C, where there is the same. */
  readonly c: number | null;
  /** Ours ÷ C's. */
  readonly ratio: number | null;
  readonly goal: string | null;
  readonly reached: boolean | null;
  /** What was counted, over what, how often. */
  readonly how: string;
}

export interface FabricBenchReport {
  readonly machine: {
    readonly cpu: string;
    readonly processors: number;
    readonly loadBefore: number;
    readonly node: string;
    readonly libfabric: string;
  };
  readonly when: string;
  /** Why there is nothing from C to compare with, if so. */
  readonly baseline: string | null;
  readonly figures: readonly Figure[];
}

const module = new URL(`./roles.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, import.meta.url);
const mebibyte = 1 << 20;
const scatterPeers = 63;
const allToAllRanks = 16;

/** Measures the engine between local processes, and the same libfabric calls from C, in one run. */
export async function benchFabric(options: FabricBenchOptions): Promise<FabricBenchReport> {
  const machine = {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    processors: cpus().length,
    loadBefore: loadavg()[0]!,
    node: process.version,
    libfabric: libfabricVersion(),
  };
  for (const provider of options.providers) requireRoom(provider, options);
  const baseline = await buildBaseline();
  const figures: Figure[] = [];
  try {
    for (const provider of options.providers) {
      figures.push(
        ...(await benchProvider(provider, options, typeof baseline === 'string' ? null : baseline)),
      );
    }
  } finally {
    if (typeof baseline !== 'string') await baseline.remove();
  }
  const when = new Date().toISOString();
  return { machine, when, baseline: typeof baseline === 'string' ? baseline : null, figures };
}

type Thread = 'caller' | 'worker';

async function benchProvider(
  provider: ProviderName,
  options: FabricBenchOptions,
  baseline: Baseline | null,
): Promise<Figure[]> {
  const device = options.device ?? localDevice(provider);
  const figures: Figure[] = [];
  const count = (n: number) => Math.max(200, Math.round(n * options.scale));
  const engine = (thread: Thread): EngineOptions => ({
    provider,
    devices: [device],
    thread,
    timeoutMs: 60_000,
  });

  const roles = async <T>(name: string, ranks: number, args: object): Promise<T[]> =>
    (await runRanks({ ranks, module, name, args, timeoutMs: 3_600_000 })) as T[];

  const measure = async (
    what: string,
    unit: string,
    how: string,
    ours: () => Promise<number>,
    c: ((raw: Baseline) => Promise<number>) | null,
    goal: { text: string; holds: (heddle: number, c: number) => boolean; needsC?: boolean } | null,
  ) => {
    const [mine, theirs]: [number[], number[]] = [[], []];
    for (let i = 0; i < options.repeat; i++) {
      if (c && baseline) theirs.push(await c(baseline));
      mine.push(await ours());
    }
    // The best of each: what other programs on the machine take away only ever makes a figure worse.
    const best = (values: readonly number[]) => (unit === 'µs' ? Math.min(...values) : Math.max(...values));
    const heddle = best(mine);
    const other = theirs.length > 0 ? best(theirs) : null;
    const beside = other === null ? '' : ` (C: ${other.toPrecision(3)})`;
    options.progress(`${provider}: ${what}: ${heddle.toPrecision(3)} ${unit}${beside}`);
    const judged = goal !== null && (other !== null || !goal.needsC);
    figures.push({
      provider,
      what,
      unit,
      heddle,
      c: other,
      ratio: other === null ? null : heddle / other,
      goal: goal?.text ?? null,
      reached: judged ? goal.holds(heddle, other ?? 0) : null,
      how: `${how}; best of ${options.repeat}, in turns with C's`,
    });
  };

  for (const thread of ['caller', 'worker'] as const) {
    const by = `${thread} thread`;
    const n = count(thread === 'caller' ? 20_000 : 2_000);
    const stream = (bytes: number, window: number, writes: number): StreamArgs => ({
      options: engine(thread),
      bytes,
      window,
      count: writes,
    });
    await measure(
      `latency of an 8-byte write, ${by}`,
      'µs',
      `half a round trip of writes with an immediate, p50 of ${n}`,
      async () => (await roles<{ p50: number }>('pingPong', 2, stream(8, 1, n)))[0]!.p50,
      (raw) => raw.measure(provider, device, 'latency', 8, 1, count(20_000)),
      thread === 'caller' ? { text: '≤ 1.5 × C', holds: (h, c) => h <= 1.5 * c, needsC: true } : null,
    );
    const messages = count(100_000);
    await measure(
      `rate of 8-byte writes, ${by}`,
      'million/s',
      `${messages} writes with an immediate, 128 under way`,
      async () =>
        messages /
        (await roles<{ seconds: number }>('stream', 2, stream(8, 128, messages)))[0]!.seconds /
        1e6,
      async (raw) => messages / (await raw.measure(provider, device, 'stream', 8, 128, messages)) / 1e6,
      null,
    );
    // A second or so: a pause of a few milliseconds, which is not ours, then changes little.
    const large = count(provider === 'udp;ofi_rxd' ? 1_000 : 10_000);
    const gigabytes = (seconds: number) => (large * mebibyte) / seconds / 1e9;
    await measure(
      `bandwidth of 1 MiB writes, ${by}`,
      'GB/s',
      `${large} writes with an immediate, 16 under way`,
      async () =>
        gigabytes((await roles<{ seconds: number }>('stream', 2, stream(mebibyte, 16, large)))[0]!.seconds),
      async (raw) => gigabytes(await raw.measure(provider, device, 'stream', mebibyte, 16, large)),
      { text: '≥ 0.95 × C', holds: (h, c) => h >= 0.95 * c, needsC: true },
    );
    // shm takes one small write at a time from an endpoint, so only there a batch is one.
    const batch = provider === 'shm' ? 1 : 16;
    const posts = count(5_000);
    await measure(
      `posting an 8-byte write, ${by}`,
      'µs',
      thread === 'caller'
        ? `the call, which makes libfabric's, in batches of ${batch}, p50 of ${posts}`
        : `the call, which hands over to the thread, in batches of ${batch}, p50 of ${posts}`,
      async () =>
        (await roles<{ microseconds: number }>('posting', 2, stream(8, batch, posts)))[0]!.microseconds,
      (raw) => raw.measure(provider, device, 'post', 8, batch, posts),
      { text: '≤ C + 1 µs', holds: (h, c) => h <= c + 1, needsC: true },
    );
    const scatters = count(1_000);
    const scatterArgs = { ...stream(64, 1, scatters), peers: scatterPeers };
    await measure(
      `posting a scatter to 63 peers, ${by}`,
      'µs',
      `the call, 64 bytes to each of 63 engines in another process, p50 of ${scatters}; C: 63 calls of libfabric`,
      async () => (await roles<{ call: number }>('scatterCall', 2, scatterArgs))[0]!.call,
      (raw) => raw.measure(provider, device, 'scatter', 64, 63, scatters),
      { text: '≤ 30 µs', holds: (h) => h <= 30 },
    );
  }

  // At one token: what its message takes by the engine, and from flag to flag by proxies, which are callers too.
  const bytes = 2048;
  const trips = count(20_000);
  const alone = `latency of a ${bytes}-byte write, caller thread`;
  await measure(
    alone,
    'µs',
    `half a round trip of writes with an immediate, p50 of ${trips}`,
    async () =>
      (
        await roles<{ p50: number }>('pingPong', 2, {
          ...{ options: engine('caller'), bytes, window: 1, count: trips },
        })
      )[0]!.p50,
    null,
    null,
  );
  // Two proxies and who raises the flags spin: with fewer processors it would be the system's time slices that are measured.
  if (availableParallelism() >= 3) {
    const engineAlone = figures.at(-1)!.heddle;
    await measure(
      `flag to flag of a ${bytes}-byte message, by proxies`,
      'µs',
      `half a round trip between two proxies of one process, host memory, no GPU, p50 of ${trips}`,
      () => flagToFlag({ provider, devices: [device], timeoutMs: 60_000 }, bytes, trips, trips),
      null,
      { text: '≤ the write + 5 µs', holds: (h) => h <= engineAlone + 5 },
    );
  }

  const n = count(300);
  const args = { options: engine('worker'), bytes: 16_384, window: 1, count: n };
  const both = { scatter: 0, barrier: 0 };
  await measure(
    `scatter among ${options.ranks} processes`,
    'µs',
    `16 KiB to each other process until theirs have landed, p50 of ${n}`,
    async () => {
      const [first] = await roles<typeof both>('rounds', options.ranks, args);
      both.barrier = first!.barrier;
      return first!.scatter;
    },
    null,
    null,
  );
  await measure(
    `barrier among ${options.ranks} processes`,
    'µs',
    `an immediate to each other process until theirs have landed, p50 of ${n}, of the same run`,
    async () => both.barrier,
    null,
    null,
  );

  options.progress(`${provider}: steady state`);
  const steadyArgs: StreamArgs = { ...args, options: engine('caller'), count: options.operations };
  const [sender, receiver] = await roles<SteadyReport>('steady', 2, steadyArgs);
  const all = 2 * options.operations;
  const how = `${options.operations} writes of 8 bytes after as many, caller thread`;
  const fact = (what: string, unit: string, heddle: number, goal: string, reached: boolean, detail = how) =>
    figures.push({ provider, what, unit, heddle, c: null, ratio: null, goal, reached, how: detail });
  const growth = (sender!.residentAfter - sender!.residentBefore) / mebibyte;
  fact(
    'heap allocated per operation',
    'B',
    sender!.heapBytesPerOperation,
    '< 1 B',
    sender!.heapBytesPerOperation < 1,
  );
  fact('garbage collections', '', sender!.collections, '0', sender!.collections === 0);
  fact('growth of resident memory', 'MiB', growth, '< 8 MiB', growth < 8);
  const missed = all - sender!.completed + (all - (receiver!.landed + all));
  fact('missed completions and arrivals', '', missed, '0', missed === 0);

  if (options.allToAll) {
    const [ranks, slice, times] = [allToAllRanks, 131_072, 200];
    options.progress(`${provider}: all-to-all of ${ranks} processes`);
    const begun = performance.now();
    const checked = await roles<{ bytesChecked: number }>('allToAll', ranks, {
      options: engine('worker'),
      slice,
      rounds: times,
    });
    const bytes = checked.reduce((sum, { bytesChecked }) => sum + bytesChecked, 0);
    const want = ranks * (ranks - 1) * slice * times;
    fact(
      'all-to-all, every byte checked',
      's',
      (performance.now() - begun) / 1000,
      `${want} bytes right`,
      bytes === want,
      `${ranks} processes, ${times} rounds of ${slice}-byte slices, with starting them`,
    );
  }
  return figures;
}

/** Says what is missing before anything is measured. */
function requireRoom(provider: ProviderName, { ranks, allToAll }: FabricBenchOptions): void {
  if (provider !== 'shm') return;
  // An endpoint for each engine, and one for each peer of it: the scatter's many receivers, or everybody to everybody.
  const meshes = [ranks, ...(allToAll ? [allToAllRanks] : [])].map((n) => n * n);
  requireShmSpace('fabric bench --provider shm', Math.max(1 + 2 * scatterPeers, ...meshes));
}

/** The device for processes of one machine: loopback, where the provider has it. */
function localDevice(provider: ProviderName): string {
  const { devices, missing } = listProviders().find((report) => report.provider === provider)!;
  if (devices.length === 0) {
    throw new UnavailableError(
      `${provider} cannot be measured here: ${missing}`,
      '`heddle fabric list` shows which providers can',
    );
  }
  return (devices.find(({ device }) => device === 'lo') ?? devices[0]!).device;
}
