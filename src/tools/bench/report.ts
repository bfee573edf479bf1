/** The result of a run: plain data, as `--output-file` writes it and the HTML report reads it. */
import { provenance } from './machine.js';
import type { Plan, Point } from './program.js';
import type { MeasuredPhase, Row, Subject } from './rows.js';
import { type Spread, unitOf } from './statistics.js';
import { warmups } from './timing.js';
import type { Workload } from './workload.js';

export type { MeasuredPhase, Point, Row, Subject };

/** All but what is measured. */
export async function reportHead(plan: Plan, of: Workload, nccl: string | null) {
  const { device, world, nodes, iterations, places } = plan;
  return {
    format: 'heddle-bench/1',
    unit: unitOf(device),
    ...(await provenance(device, of.ranks, nccl)),
    method: {
      ...{ world, nodes, iterations },
      warmups: device === 'cuda' ? warmups : 0,
      // How many places experts had in the rounds that were also measured with a placement; absent where none were.
      ...(places !== undefined && { places }),
    },
    workload: of,
  };
}

export interface BenchReport extends Readonly<Awaited<ReturnType<typeof reportHead>>> {
  /** One meeting of all ranks by flags, among many in one kernel. */
  readonly barrier: Spread | null;
  readonly points: readonly Point[];
  /** The measurements that could not be made, and why. */
  readonly notes: readonly string[];
}

export function rowOf(point: Point, subject: Subject, phase: MeasuredPhase): Row | undefined {
  return point.rows.find((row) => row.subject === subject && row.phase === phase);
}
