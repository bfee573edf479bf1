/** One write, and one call, between two processes: by the engine, and by the same calls of libfabric in C. */
import { extname, join } from 'node:path';
import { type EngineOptions, type ProviderName, sweepShm } from '../../../src/net/fabric/index.js';
import { launchReporting } from '../../../src/net/world/index.js';
import type { Baseline } from './baseline.js';
import type { Sizes } from './roles.js';

const program = join(import.meta.dirname, `rank${extname(import.meta.filename)}`);

export const scatterPeers = 63;
const mebibyte = 1 << 20;

export interface Figure {
  readonly provider: ProviderName;
  readonly what: string;
  readonly unit: string;
  readonly heddle: number;
  /** The figure of the same measurement written in C; null where there is none. */
  readonly c: number | null;
  /** Ours ÷ C's. */
  readonly ratio: number | null;
  /** The method in words: what was counted, over what, and how often. */
  readonly how: string;
}

/** A measurement between two processes, by a role and by a mode of the C program. */
interface Case extends Pick<Figure, 'what' | 'unit' | 'how'> {
  readonly role: 'pingPong' | 'stream' | 'posting' | 'scatterCall';
  readonly mode: Parameters<Baseline['measure']>[1];
  readonly sizes: Sizes;
  /** The sizes of the C program, where they are others. */
  readonly sizesOfC?: Sizes;
  /** Makes the figure of the measured time; by default it is that time. */
  readonly figure?: (time: number) => number;
}

export interface FabricBenchOptions {
  readonly providers: readonly ProviderName[];
  readonly device: string | undefined;
  readonly repeat: number;
  readonly scale: number;
  readonly progress: (line: string) => void;
}

interface Setting extends Pick<FabricBenchOptions, 'repeat' | 'scale' | 'progress'> {
  readonly provider: ProviderName;
  readonly device: string;
  readonly baseline: Baseline | null;
}

/** Latency, rate, bandwidth, and what a call takes of its caller. */
function casesOf({ provider, scale }: Setting, thread: 'caller' | 'worker'): readonly Case[] {
  const times = (n: number): number => Math.max(200, Math.round(n * scale));
  const trips = times(thread === 'caller' ? 20_000 : 2_000);
  const messages = times(100_000);
  // A second or so: a pause of a few milliseconds, which is not ours, then changes little.
  const large = times(provider === 'udp;ofi_rxd' ? 1_000 : 10_000);
  // shm takes one small write at a time from an endpoint, so only there a batch is one.
  const batch = provider === 'shm' ? 1 : 16;
  const posts = times(5_000);
  const call =
    thread === 'caller' ? "the call, which makes libfabric's" : 'the call, which hands over to the thread';
  const scatters = times(1_000);
  return [
    {
      what: `latency of an 8-byte write, ${thread} thread`,
      unit: 'µs',
      how: `half a round trip of writes with an immediate, p50 of ${trips}`,
      ...{ role: 'pingPong', mode: 'latency' },
      sizes: { bytes: 8, window: 1, count: trips },
      sizesOfC: { bytes: 8, window: 1, count: times(20_000) },
    },
    {
      what: `rate of 8-byte writes, ${thread} thread`,
      unit: 'million/s',
      how: `${messages} writes with an immediate, 128 under way`,
      ...{ role: 'stream', mode: 'stream' },
      sizes: { bytes: 8, window: 128, count: messages },
      figure: (seconds) => messages / seconds / 1e6,
    },
    {
      what: `bandwidth of 1 MiB writes, ${thread} thread`,
      unit: 'GB/s',
      how: `${large} writes with an immediate, 16 under way`,
      ...{ role: 'stream', mode: 'stream' },
      sizes: { bytes: mebibyte, window: 16, count: large },
      figure: (seconds) => (large * mebibyte) / seconds / 1e9,
    },
    {
      what: `posting an 8-byte write, ${thread} thread`,
      unit: 'µs',
      how: `${call}, in batches of ${batch}, p50 of ${posts}`,
      ...{ role: 'posting', mode: 'post' },
      sizes: { bytes: 8, window: batch, count: posts },
    },
    {
      what: `posting a scatter to ${scatterPeers} peers, ${thread} thread`,
      unit: 'µs',
      how: `the call, 64 bytes to each of ${scatterPeers} engines in another process, p50 of ${scatters}; C: ${scatterPeers} calls of libfabric`,
      ...{ role: 'scatterCall', mode: 'scatter' },
      sizes: { bytes: 64, window: scatterPeers, count: scatters },
    },
  ];
}

/** Every case in the caller's own thread, then in a worker thread. */
export async function measureProvider(setting: Setting): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const thread of ['caller', 'worker'] as const)
    for (const one of casesOf(setting, thread)) figures.push(await measure(setting, thread, one));
  return figures;
}

async function measure(setting: Setting, thread: 'caller' | 'worker', one: Case): Promise<Figure> {
  const { provider, device, repeat, baseline } = setting;
  const { what, unit, how, role, mode, sizes, sizesOfC = sizes, figure = (time) => time } = one;
  const progress = (line: string): void => setting.progress(`${provider}: ${line}`);
  const options: EngineOptions = { provider, devices: [device], thread, timeoutMs: 60_000 };
  progress(`${what} …`);
  const [mine, theirs]: [number[], number[]] = [[], []];
  for (let i = 0; i < repeat; i++) {
    if (baseline) theirs.push(figure(await baseline.measure(setting, mode, sizesOfC)));
    mine.push(figure(await play(role, { options, ...sizes })));
  }
  // The best of the repetitions counts: other programs on the machine can only make a figure worse.
  const best = (values: readonly number[]) => (unit === 'µs' ? Math.min(...values) : Math.max(...values));
  const heddle = best(mine);
  const c = theirs.length > 0 ? best(theirs) : null;
  progress(`${what}: ${heddle.toPrecision(3)} ${unit}${c === null ? '' : ` (C: ${c.toPrecision(3)})`}`);
  return {
    ...{ provider, what, unit, heddle, c, ratio: c === null ? null : heddle / c },
    how: `${how}; best of ${repeat}${c === null ? '' : ", in turns with C's"}`,
  };
}

/** Runs a function of roles.ts in two processes; resolves with what rank 0's returned. */
async function play(name: string, args: object): Promise<number> {
  let result = Number.NaN;
  const launch = { ranks: 2, program, args: [name, JSON.stringify(args)], timeoutMs: 3_600_000 };
  try {
    await launchReporting(`the measurement ${name}`, launch, (report) => {
      ({ result } = report as { result: number });
    });
  } finally {
    sweepShm(); // what processes that were ended could not clean up themselves
  }
  return result;
}
