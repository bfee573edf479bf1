/**
 * The driver of every benchmark: it makes the world, all ranks in this process or a process for each, hears what rank 0
 * measures, and keeps the report. A benchmark says what a rank measures, and in which columns its points are shown.
 */
import { ArgumentError, HeddleError } from '../../base/errors.js';
import type { Column } from '../../base/table.js';
import type { Bits, FloatDtype } from '../../moe/layer/index.js';
import { launchReporting, World } from '../../net/world/index.js';
import { compareClosely } from '../../verify/testing/index.js';
import { columnsIn } from './columns.js';
import { createNoise, type Rig } from './inputs.js';
import { ncclHere, provenance, requireGpus } from './machine.js';
import { unitOf } from './statistics.js';
import { Crew, createTiming } from './timing.js';
import { type Span, trace } from './trace.js';

/** The part of a plan that every benchmark has. */
export interface Measuring {
  readonly device: 'cuda' | 'sim';
  readonly iterations: number;
  /** Repeat without a pause what is measured, and say what it takes of a GPU. */
  readonly sustained?: boolean;
  /** Also look at what is measured, launch by launch. */
  readonly trace?: boolean;
  /** Also measure NCCL, where it can be used. */
  readonly nccl?: boolean;
}

/** Where a benchmark runs, and on what. */
export interface Setting {
  readonly ranks: number;
  /** Equal nodes of consecutive ranks, between which rows cross a network. */
  readonly nodes?: number;
  readonly world?: 'local' | 'processes';
  /** The seed of random data. */
  readonly seed?: number;
  /** Iterations before those that count, where not as many as usual. */
  readonly warmups?: number;
}

/** The measuring of a benchmark: what a rank does, and the members that the report has beside points. */
export interface Measured<Plan extends Measuring, Point, Members extends object> {
  /** The report's: `heddle-bench/1`. */
  readonly format: string;
  /** The program of a rank in a process of its own, where there may be such worlds: it is given the plan, and prints events. */
  readonly worker?: string;
  /** @throws ArgumentError where the plan is nonsense: nothing has started yet. */
  setting(plan: Plan): Setting;
  /** The report's members, as far as they are known before ranks start. */
  members(plan: Plan): Members;
  /** One rank's part. Every rank calls it, and tells the same. */
  measure(rig: Rig, plan: Plan, tell: Tell<Point, Members>): Promise<void>;
}

/** A benchmark, and how it is shown: points are lines of a table. */
export interface Bench<Plan extends Measuring, Point, Members extends object, Line = Point>
  extends Measured<Plan, Point, Members> {
  heading(report: Report<Point, Members>): string;
  columns(report: Report<Point, Members>): readonly Column<Line>[];
  lines(point: Point): readonly Line[];
  /** The text below the table. */
  foot?(report: Report<Point, Members>): string;
  /** The object that `--json` prints, where it is not the report. */
  results?(report: Report<Point, Members>): object;
}

export type BenchEvent<Point, Members> =
  | { readonly type: 'doing'; readonly what: string }
  | { readonly type: 'members'; readonly members: Partial<Report<Point, Members>> }
  | { readonly type: 'point'; readonly point: Point };

export type Report<Point, Members> = Members &
  Awaited<ReturnType<typeof provenance>> & {
    readonly format: string;
    readonly unit: ReturnType<typeof unitOf>;
    readonly points: readonly Point[];
    /** The launches of the last point, where a trace was asked for. */
    readonly spans: readonly Span[];
    readonly notes: readonly string[];
  };

/** The functions by which a rank tells of its measurements. */
export type Tell<Point, Members = object> = ReturnType<typeof tellBy<Point, Members>>;

function tellBy<Point, Members>(
  { timing }: Rig,
  plan: Measuring,
  emit: (event: BenchEvent<Point, Members>) => void,
) {
  return {
    doing: (what: string): void => emit({ type: 'doing', what }),
    members: (members: Partial<Report<Point, Members>>): void => emit({ type: 'members', members }),
    point: (point: Point): void => emit({ type: 'point', point }),
    /** Traces what `enqueue` enqueues, where that was asked for. Every rank calls it. */
    async trace(enqueue: () => void): Promise<void> {
      if (plan.trace)
        emit({
          type: 'members',
          members: { spans: await trace(timing, enqueue) } as Partial<Report<Point, Members>>,
        });
    },
  };
}

/** One rank's part of a benchmark. Every rank of the world calls it; `crew` is shared by those of a process. */
export async function measureOn<Plan extends Measuring, Point, Members extends object>(
  world: World,
  crew: Crew,
  bench: Measured<Plan, Point, Members>,
  plan: Plan,
  emit: (event: BenchEvent<Point, Members>) => void,
): Promise<void> {
  const { warmups, seed = 1 } = bench.setting(plan);
  const timing = await createTiming(world, crew, plan.iterations, {
    before: warmups,
    sustained: plan.sustained,
  });
  const noise = createNoise(world.device, timing.stream, seed);
  await timing.stream.synchronize();
  const rig = { timing, noise };
  await bench.measure(rig, plan, tellBy(rig, plan, emit));
  await timing.check();
  await timing.dispose();
  noise.free();
}

/**
 * Runs the plan; tells each event as it comes, and the report so far with it.
 * @throws UnavailableError where there are fewer GPUs than ranks, HeddleError where a result is wrong: figures would be worth nothing.
 */
export async function runBenchmark<Plan extends Measuring, Point, Members extends object>(
  bench: Measured<Plan, Point, Members>,
  wanted: Plan,
  on: (event: BenchEvent<Point, Members>, soFar: Report<Point, Members>) => void = () => {},
): Promise<Report<Point, Members>> {
  const { ranks, nodes = 1, world = 'local' } = bench.setting(wanted);
  const { device } = wanted;
  const real = device === 'cuda';
  if (!real && world === 'processes')
    throw new ArgumentError('world', world, 'local: simulated GPUs live in one process');
  if (real) requireGpus(ranks, '; with --device sim the simulator counts steps instead of time');
  // With --nodes the ranks of one machine only pretend to be apart: NCCL would go by NVLink, so it is no comparison.
  const nccl = real && wanted.nccl && nodes === 1 ? ncclHere() : { version: null, reason: '' };
  const plan: Plan = wanted.nccl ? { ...wanted, nccl: nccl.version !== null } : wanted;

  let report = {
    ...{ format: bench.format, unit: unitOf(device), ...(await provenance(device, ranks, nccl.version)) },
    ...{ points: [], spans: [], ...bench.members(plan) },
    notes: nccl.reason === '' ? [] : [`NCCL is not compared: ${nccl.reason}`],
  } as Report<Point, Members>;
  const hear = (event: BenchEvent<Point, Members>): void => {
    const { points } = report;
    if (event.type === 'members') report = { ...report, ...event.members };
    if (event.type === 'point') report = { ...report, points: [...points, event.point] };
    on(event, report);
  };
  if (world === 'processes') {
    // Rank 0 prints an event a line; the others print nothing unless they fail.
    const launch = {
      ranks,
      ...(nodes > 1 && { nodes }),
      program: bench.worker!,
      args: [JSON.stringify(plan)],
    };
    await launchReporting('the benchmark', launch, (event) => hear(event as BenchEvent<Point, Members>));
  } else {
    const crew = new Crew();
    await World.local({ ranks, nodes, device }, (world) =>
      measureOn(world, crew, bench, plan, world.rank === 0 ? hear : () => {}),
    );
  }
  return report;
}

/** The columns in which a report's lines are shown. */
export const columnsOf = <Point, Members extends object, Line>(
  { columns }: Pick<Bench<never, Point, Members, Line>, 'columns'>,
  report: Report<Point, Members>,
): readonly Column<Line>[] => columnsIn(report.unit, columns(report));

/** Requires values that may differ as another order of sums makes them. @throws HeddleError where they are further apart. */
export function requireClose(what: string, dtype: FloatDtype, ours: Bits, others: Bits, part: number): void {
  const { different, first } = compareClosely('rows', dtype, ours, others, undefined, part);
  if (different > 0) throw wrongResult(`${what}: ${first} (${different} values of ${ours.length})`);
}

/** The error of a result that is not what it should be: figures of a wrong kernel are worth nothing. */
export const wrongResult = (what: string): HeddleError =>
  new HeddleError(
    'HEDDLE_WRONG_RESULT',
    `${what}; nothing that this run measured counts. Please report it with the output of \`heddle doctor\``,
  );
