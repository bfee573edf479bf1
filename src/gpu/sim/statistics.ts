/** The record of a machine: launches, and bytes between ranks. */
import type { SimLaunch } from './thread.js';

/** The trace keeps at least this many launches, and at most twice as many. */
const traced = 50_000;

/** When a launch ran, in steps of the machine. */
export interface TraceEntry {
  readonly rank: number;
  /** 'rank 0 stream 2' */
  readonly stream: string;
  readonly kernel: string;
  readonly launch: number;
  readonly start: number;
  readonly end: number;
}

export interface KernelStatistics {
  launches: number;
  /** Bytes that its threads stored to, and loaded from, memory of other ranks. */
  bytesStored: number;
  bytesLoaded: number;
}

export class Statistics {
  readonly trace: TraceEntry[] = [];
  readonly kernels = new Map<string, KernelStatistics>();

  ended({ id, home, stream, kernel, startStep, endStep, traffic }: SimLaunch): void {
    if (this.trace.length === 2 * traced) this.trace.splice(0, traced);
    this.trace.push({ rank: home, stream: stream.key, kernel, launch: id, start: startStep, end: endStep });
    let statistics = this.kernels.get(kernel);
    if (statistics === undefined) {
      statistics = { launches: 0, bytesStored: 0, bytesLoaded: 0 };
      this.kernels.set(kernel, statistics);
    }
    statistics.launches++;
    statistics.bytesStored += traffic[0]!;
    statistics.bytesLoaded += traffic[1]!;
  }
}
