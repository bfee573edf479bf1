/** The result of a run: plain data, as `--output-file` writes it and the HTML report reads it. */
import type { KernelFacts } from '../../gpu/cuda/index.js';
import type { Tuning } from '../../moe/families/index.js';
import type { Waits } from '../../moe/index.js';
import type { Spread } from './statistics.js';
import type { RoundBytes, Workload } from './workload.js';

export const reportFormat = 'heddle-bench/1';

export const measuredPhases = ['dispatch', 'combine', 'both'] as const;
export type MeasuredPhase = (typeof measuredPhases)[number];
/** In the order in which a report shows them. */
export const subjects = [
  ...(['heddle', 'nccl sparse', 'nccl dense', 'nccl gather', 'nvshmem dense'] as const),
  ...(['stores', 'loads', 'network', 'heddle placed'] as const),
] as const;
export type Subject = (typeof subjects)[number];

export interface Row {
  readonly subject: Subject;
  readonly phase: MeasuredPhase;
  /** Median over iterations of the slowest rank's time, in the report's unit. */
  readonly time: number;
  readonly spread: Spread | null;
  /** Says how, where the time was calculated rather than measured. */
  readonly derived: string | null;
  /** Bytes that cross NVLink per GPU ÷ time, GB/s; null on the simulator, and of the network. */
  readonly physical: number | null;
  /** Bytes that the layer asks for per GPU (a row for every route) ÷ time. */
  readonly logical: number | null;
  /** The time that plain stores of the busiest GPU's bytes take, or between nodes the same messages by the network alone, ÷ this time. */
  readonly ofCeiling: number | null;
  /** NCCL's sparse all-to-all for the same phase ÷ this time. */
  readonly overNccl: number | null;
}

/** A kernel between two events. */
export interface KernelNumbers {
  readonly kernel: 'dispatch' | 'combine';
  /** Median of the slowest rank's time between the events around it. */
  readonly time: number;
  /** The time that two events with nothing between them show. */
  readonly gap: number;
  readonly blocks: number;
  readonly threads: number;
  /** The compiler's figures for it; null on the simulator. */
  readonly facts: KernelFacts | null;
}

/** The traffic of a rank's proxy in a phase, headers and all; means over ranks and input sets. */
export interface Sent {
  readonly messages: number;
  readonly bytes: number;
}

export interface Point {
  readonly tokens: number;
  /** Rounds in a graph, and different inputs among them. */
  readonly rounds: number;
  readonly sets: number;
  readonly bytes: RoundBytes;
  /** The traffic over the network; null where all ranks are one node. */
  readonly network: Readonly<Record<'dispatch' | 'combine', Sent>> | null;
  /** Where the messages lie that NICs read and write, and why; likewise. */
  readonly wires: string | null;
  /** The routes of the busiest rank over the mean, without and with a placement; absent where none was asked for. */
  readonly busiest?: { readonly plain: number; readonly placed: number };
  /** [rank][peer]: how long a rank waits for a peer in a round, in the report's unit; absent where nobody asked. */
  readonly waits?: Pick<Waits, 'dispatch' | 'combine'>;
  readonly rows: readonly Row[];
  readonly kernels: readonly KernelNumbers[] | null;
  readonly tuning: Tuning;
}

export interface Machine {
  readonly gpus: readonly string[];
  readonly driver: string | null;
  readonly compiler: string | null;
  readonly nccl: string | null;
  readonly node: string;
}

export interface Method {
  readonly world: 'local' | 'processes';
  readonly nodes: number;
  readonly iterations: number;
  readonly warmups: number;
  /** How many places experts had in the rounds that were also measured with a placement; absent where none were. */
  readonly places?: number;
}

export interface BenchReport {
  readonly format: typeof reportFormat;
  /** `µs`, or `steps` of the simulator, which say nothing about a GPU's time. */
  readonly unit: 'µs' | 'steps';
  readonly date: string;
  readonly version: string;
  readonly commit: string | null;
  readonly machine: Machine;
  readonly method: Method;
  readonly workload: Workload;
  /** One meeting of all ranks by flags, among many in one kernel. */
  readonly barrier: Spread | null;
  readonly points: readonly Point[];
  /** The measurements that could not be made, and why. */
  readonly notes: readonly string[];
}

export function rowOf(point: Point, subject: Subject, phase: MeasuredPhase): Row | undefined {
  return point.rows.find((row) => row.subject === subject && row.phase === phase);
}
