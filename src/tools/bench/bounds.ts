/** The least time that products of experts may take on a GPU: what its memory brings, and what its tensor cores multiply. */
import type { Column } from '../../base/table.js';
import { CudaDevice } from '../../gpu/cuda/index.js';
import { callSite } from '../../gpu/index.js';
import { readCeilingKernel, transferLaunch } from '../../verify/kernels/index.js';
import { gigabytes } from './statistics.js';
import type { Timing } from './timing.js';

export interface Rates {
  /** Bytes that its memory brings in a second, in GB, measured. */
  readonly reads: number;
  /** Useful operations of its tensor cores in a second, in TFLOP, at its highest clock; null where Heddle does not know them. */
  readonly tensorCores: Readonly<Record<'bf16' | 'fp8', number>> | null;
}

/** In µs. */
export interface Bounds {
  /** Every weight is read once. */
  readonly memory: number;
  /** The tensor cores do nothing else; null where their rate is not known. */
  readonly tensorCores: number | null;
}

/** Operations of a multiprocessor in a clock, by compute capability. */
const perClock: Readonly<Record<number, Readonly<Record<'bf16' | 'fp8', number>>>> = {
  9: { bf16: 4096, fp8: 8192 },
};

/** Measures the rates of a GPU; those of a simulated one count steps, and say nothing. */
export async function measureRates(timing: Timing): Promise<Rates> {
  const { device } = timing.world;
  const bytes = device.kind === 'sim' ? 2 ** 12 : 2 ** 30;
  const blocks = device.kind === 'sim' ? 1 : 4 * device.multiprocessors;
  const threads = device.kind === 'sim' ? 32 : transferLaunch.threads;
  const from = device.allocate(bytes, 'what is read');
  const sink = device.allocate(4 * blocks * threads, 'what was read');
  const { set, launch } = await callSite(device, readCeilingKernel, {
    grid: blocks,
    block: threads,
    rank: 0,
  });
  timing.stream.fill(from.address, bytes, 0);
  set.from(from.address);
  set.vectors(bytes / 16);
  set.sink(sink.address);
  const { median } = await timing.time(4, [() => launch(timing.stream)]);
  from.free();
  sink.free();
  const reads = gigabytes(bytes, median);
  const known = perClock[device.capability[0]];
  if (!(device instanceof CudaDevice) || known === undefined) return { reads, tensorCores: null };
  const rate = (operations: number): number =>
    (operations * device.multiprocessors * device.gpu.clockMHz) / 1e6;
  return { reads, tensorCores: { bf16: rate(known.bf16), fp8: rate(known.fp8) } };
}

export const boundsOf = (
  { reads, tensorCores }: Rates,
  dtype: 'bf16' | 'fp8',
  of: { readonly weightBytes: number; readonly flops: number },
): Bounds => ({
  memory: of.weightBytes / reads / 1000,
  tensorCores: tensorCores && of.flops / tensorCores[dtype] / 1e6,
});

export const boundOf = ({ memory, tensorCores }: Bounds): number => Math.max(memory, tensorCores ?? 0);

export const boundsColumns = <Point>(of: (point: Point) => Bounds): readonly Column<Point>[] => [
  { head: 'memory µs', rate: true, cell: (point: Point) => of(point).memory.toFixed(1) },
  { head: 'cores µs', rate: true, cell: (point: Point) => of(point).tensorCores?.toFixed(1) ?? '–' },
];
