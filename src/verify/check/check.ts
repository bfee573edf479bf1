/**
 * The check: runs subjects in many configurations under many schedules, and shows that it would have seen mistakes
 * by running mutants of their kernels until each is caught.
 */
import { HeddleError } from '../../base/errors.js';
import { type Exploration, type Finding, findingKey } from '../../gpu/sim/index.js';
import { type Job, jobName, type Outcome } from './jobs.js';
import type { CheckOptions, CheckProgress } from './options.js';
import { type Pool, thisThread, threads } from './pool.js';
import { replayOf } from './replay.js';
import { seedOf } from './run.js';
import { type CheckConfiguration, type CheckSubject, type Mutant, subjectsNamed } from './subject.js';

export interface CheckReport {
  readonly kernels: readonly string[];
  readonly configurations: number;
  readonly schedules: number;
  readonly findings: readonly Finding[];
  readonly mutants: {
    readonly total: number;
    readonly killed: number;
    readonly survivors: readonly { readonly id: string; readonly where: string; readonly text: string }[];
  };
  readonly exhaustive: readonly (Exploration & { readonly configuration: string })[];
}

/**
 * Schedules in all, unless told otherwise; of each configuration at least a random one and one with priorities. A mistake shows in
 * another configuration sooner than in another schedule: of Heddle's mutants two are not caught in the first schedule of one.
 */
const defaultSchedules = 800;
const fewestSeeds = 2;

/** Seeds that a configuration runs one after the other. Its kernels are compiled anew for each row. */
const seedsInARow = 16;

const inRows = (seeds: readonly string[]): string[][] =>
  Array.from({ length: Math.ceil(seeds.length / seedsInARow) }, (_, row) =>
    seeds.slice(row * seedsInARow, (row + 1) * seedsInARow),
  );

/** A configuration, and its place among all that there are. */
interface Case {
  readonly subject: CheckSubject;
  readonly configuration: CheckConfiguration;
  readonly index: number;
}

export async function check(
  subjects: readonly CheckSubject[],
  options: CheckOptions = {},
): Promise<CheckReport> {
  const all = subjects
    .flatMap((subject) => subject.configurations.map((configuration) => ({ subject, configuration })))
    .map((one, index): Case => ({ ...one, index }));
  const named = subjectsNamed(subjects, options.only ?? []);
  const plan = planOf(
    all.filter(({ subject }) => named.includes(subject)),
    options,
  );
  const run = new CheckRun(
    all.map(({ configuration }) => configuration),
    plan,
    options,
  );
  try {
    await run.schedules();
    if (options.mutants) await run.mutants(options.schedulesPerMutant ?? 400);
    return run.report();
  } finally {
    await run.close();
  }
}

/** The schedules that are run before the mutants. */
interface Plan {
  readonly cases: readonly Case[];
  readonly jobs: readonly Job[];
  /** Schedules, at most. */
  readonly total: number;
}

function planOf(wanted: readonly Case[], options: CheckOptions): Plan {
  const { replay, exhaustive, mutants: listMutants = false } = options;
  const seeds = (cases: readonly Case[], seeds: readonly string[]): Plan => ({
    cases,
    // Early findings come from all configurations, and each compiles its kernels once for several seeds.
    jobs: inRows(seeds).flatMap((row) =>
      cases.flatMap(({ index }) =>
        row.map((seed): Job => {
          return {
            kind: 'schedule',
            configuration: index,
            seed,
            listMutants: listMutants && seed === seeds[0],
          };
        }),
      ),
    ),
    total: seeds.length * cases.length,
  });
  const explorations = (cases: readonly Case[], first: number, limit: number): Plan => ({
    cases,
    jobs: cases.map(({ index }): Job => {
      return { kind: 'exploration', configuration: index, first, limit, listMutants };
    }),
    total: limit * cases.length,
  });
  if (replay !== undefined) {
    const what = replayOf(replay, wanted);
    if (what.kind === 'seed') return seeds(what.cases, [what.seed]);
    return explorations(what.cases, what.nth, what.nth);
  }
  if (exhaustive !== undefined) {
    const tiny = wanted.filter(({ configuration }) => configuration.tiny);
    if (tiny.length === 0)
      throw new HeddleError('HEDDLE_CHECK', 'nothing to check: none of these has a tiny configuration');
    const explored = explorations(tiny, 1, exhaustive);
    if (!listMutants) return explored;
    // Many operations occur in no tiny configuration, so each other configuration runs one schedule too, which lists its mutants.
    const others = seeds(
      wanted.filter(({ configuration }) => !configuration.tiny),
      [seedOf(0)],
    );
    return {
      cases: wanted,
      jobs: [...explored.jobs, ...others.jobs],
      total: explored.total + others.total,
    };
  }
  const count = options.seeds ?? Math.max(fewestSeeds, Math.round(defaultSchedules / wanted.length));
  return seeds(
    wanted,
    Array.from({ length: count }, (_, i) => seedOf(i)),
  );
}

function poolOf(configurations: readonly CheckConfiguration[], options: CheckOptions): Pool {
  const { workers, replay, print, watch } = options;
  const count = workers?.count ?? 1;
  // One schedule is run sooner than a thread starts.
  if (replay !== undefined)
    return thisThread(configurations, { ...(print && { print }), ...(watch && { watch }) });
  if (workers === undefined || count === 1) return thisThread(configurations, {});
  return threads(count, workers.module, configurations);
}

/** A replay of an exhaustive search may ask for more schedules than it has. */
function requireReached(
  configurations: readonly CheckConfiguration[],
  job: Job,
  { schedules }: Outcome,
): void {
  if (job.kind !== 'exploration' || job.first <= schedules) return;
  const all = schedules === 1 ? 'one schedule is all there is' : `${schedules} schedules are all there are`;
  throw new HeddleError('HEDDLE_CHECK', `${jobName(configurations, job)}: ${all}, not ${job.first}`);
}

class CheckRun {
  readonly #pool: Pool;
  /** Each mistake once, with the number of the first job that met it: whichever worker was faster. */
  readonly #found = new Map<string, { readonly job: number; readonly finding: Finding }>();
  readonly #outcomes: Outcome[] = [];
  readonly #survivors: Mutant[] = [];
  #mutantCount = 0;
  readonly #configurations: readonly CheckConfiguration[];
  readonly #plan: Plan;
  readonly #options: CheckOptions;

  constructor(configurations: readonly CheckConfiguration[], plan: Plan, options: CheckOptions) {
    this.#configurations = configurations;
    this.#plan = plan;
    this.#options = options;
    this.#pool = poolOf(configurations, options);
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  #tell(phase: CheckProgress['phase'], done: number, total: number, job: Job | null): void {
    const what = job === null ? '' : jobName(this.#configurations, job);
    this.#options.progress?.({ phase, done, total, what, findings: this.#found.size });
  }

  async schedules(): Promise<void> {
    const { jobs, total } = this.#plan;
    let done = 0;
    let latest: Job | null = null;
    const tell = (): void => this.#tell('schedules', done, total, latest);
    await this.#pool.run(jobs, {
      began: (job) => {
        latest = job;
        tell();
      },
      ran: () => {
        done++;
        tell();
      },
      ended: (index, outcome) => {
        this.#outcomes[index] = outcome;
        this.#add(index, outcome.findings);
      },
    });
    for (const [i, outcome] of this.#outcomes.entries()) {
      requireReached(this.#configurations, jobs[i]!, outcome);
    }
    this.#tell('schedules', total, total, null);
  }

  #add(job: number, findings: readonly Finding[]): void {
    for (const finding of findings) {
      const key = findingKey(finding);
      const known = this.#found.get(key);
      if (known !== undefined && known.job <= job) continue;
      this.#found.delete(key); // so that those of one job stay in order
      this.#found.set(key, { job, finding });
    }
  }

  /**
   * Each mutant runs in the configurations that have its operation, until it is caught; the shortest first, since
   * most are caught anywhere.
   */
  async mutants(limit: number): Promise<void> {
    const jobs = this.#mutantJobs(limit);
    this.#mutantCount = jobs.length;
    const killed: boolean[] = [];
    let done = 0;
    await this.#pool.run(jobs, {
      began: (job) => this.#tell('mutants', done, jobs.length, job),
      ran: () => {},
      ended: (index, { findings }) => {
        killed[index] = findings.length > 0;
        done++;
      },
    });
    this.#survivors.push(...jobs.filter((_, i) => !killed[i]).map(({ mutant }) => mutant));
    this.#tell('mutants', done, jobs.length, null);
  }

  #mutantJobs(limit: number): Extract<Job, { kind: 'mutant' }>[] {
    const costs = new Map<number, number>();
    const mutants = new Map<number, readonly Mutant[]>();
    for (const [i, { steps, mutants: listed }] of this.#outcomes.entries()) {
      const job = this.#plan.jobs[i]!;
      if (job.kind === 'mutant') continue;
      costs.set(job.configuration, steps);
      if (job.listMutants) mutants.set(job.configuration, listed);
    }
    const cost = (configuration: number): number => costs.get(configuration) ?? 0;
    const jobs = new Map<string, { mutant: Mutant; configurations: number[] }>();
    for (const configuration of [...mutants.keys()].sort((a, b) => cost(a) - cost(b))) {
      for (const mutant of mutants.get(configuration)!) {
        const job = jobs.get(mutant.id);
        if (job === undefined) jobs.set(mutant.id, { mutant, configurations: [configuration] });
        else job.configurations.push(configuration);
      }
    }
    return [...jobs.values()].map((job) => ({ kind: 'mutant', ...job, limit }));
  }

  report(): CheckReport {
    const { cases, jobs } = this.#plan;
    const found = [...this.#found.values()].sort((a, b) => a.job - b.job);
    return {
      kernels: [...new Set(cases.flatMap(({ subject }) => subject.kernels))],
      configurations: cases.length,
      schedules: this.#outcomes.reduce((sum, { schedules }) => sum + schedules, 0),
      findings: found.map(({ finding }) => finding),
      mutants: {
        total: this.#mutantCount,
        killed: this.#mutantCount - this.#survivors.length,
        survivors: this.#survivors.map(({ id, where, text }) => ({ id, where, text })),
      },
      exhaustive: this.#outcomes.flatMap(({ schedules, complete }, i) => {
        const job = jobs[i]!;
        return job.kind === 'exploration'
          ? [{ configuration: jobName(this.#configurations, job), schedules, complete }]
          : [];
      }),
    };
  }
}
