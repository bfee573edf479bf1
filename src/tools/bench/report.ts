/** The result of a run: plain data, as `--output-file` writes it and the HTML report reads it. */
import type { Provenance } from './machine.js';
import type { Point } from './program.js';
import type { MeasuredPhase, Row, Subject } from './rows.js';
import type { Spread } from './statistics.js';
import type { Workload } from './workload.js';

export type { MeasuredPhase, Point, Row, Subject };

export const reportFormat = 'heddle-bench/1';

export interface BenchReport extends Provenance {
  readonly format: typeof reportFormat;
  /** `µs`, or `steps` of the simulator, which say nothing about a GPU's time. */
  readonly unit: 'µs' | 'steps';
  readonly method: {
    readonly world: 'local' | 'processes';
    readonly nodes: number;
    readonly iterations: number;
    readonly warmups: number;
    /** How many places experts had in the rounds that were also measured with a placement; absent where none were. */
    readonly places?: number;
  };
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
