/**
 * The check: runs subjects in many configurations under many schedules, and shows that it would have seen mistakes
 * by running mutants of their kernels until each is caught.
 */
import { HeddleError } from '../../base/errors.js';
import { type Finding, findingKey } from '../../gpu/sim/index.js';
import { type Job, jobName, type Outcome } from './jobs.js';
import type { CheckOptions, CheckProgress } from './options.js';
import { type Pool, thisThread, threads } from './pool.js';
import { replayOf } from './replay.js';
import { seedOf } from './run.js';
import { type CheckConfiguration, type CheckSubject, type Mutant, subjectsNamed } from './subject.js';

export type CheckReport = Awaited<ReturnType<typeof run>>;

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
  const wanted = new Set(subjectsNamed(subjects, options.only ?? []).flatMap((one) => one.configurations));
  const isWanted = (configuration: CheckConfiguration): boolean => wanted.has(configuration);
  const plan = planOf(
    all.filter(({ configuration }) => isWanted(configuration)),
    options,
  );
  const configurations = all.map(({ configuration }) => configuration);
  const pool = poolOf(configurations, options);
  try {
    const others = subjects.filter(({ configurations }) => !configurations.every(isWanted));
    return await run(configurations, plan, pool, options, new Set(others.flatMap(({ kernels }) => kernels)));
  } finally {
    await pool.close();
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

async function run(
  configurations: readonly CheckConfiguration[],
  { cases, jobs, total }: Plan,
  pool: Pool,
  options: CheckOptions,
  /** Kernels that configurations run which were not asked for. */
  runElsewhere: ReadonlySet<string>,
) {
  /** Each mistake once, with the number of the first job that met it: whichever worker was faster. */
  const found = new Map<string, { readonly job: number; readonly finding: Finding }>();
  const outcomes: Outcome[] = [];
  const tell = (phase: CheckProgress['phase'], done: number, total: number, job: Job | null): void => {
    const what = job === null ? '' : jobName(configurations, job);
    options.progress?.({ phase, done, total, what, findings: found.size });
  };
  const add = (job: number, findings: readonly Finding[]): void => {
    for (const finding of findings) {
      const key = findingKey(finding);
      const known = found.get(key);
      if (known !== undefined && known.job <= job) continue;
      found.delete(key); // so that those of one job stay in order
      found.set(key, { job, finding });
    }
  };

  let done = 0;
  let latest: Job | null = null;
  await pool.run(jobs, {
    began: (job) => {
      latest = job;
      tell('schedules', done, total, latest);
    },
    ran: () => {
      done++;
      tell('schedules', done, total, latest);
    },
    ended: (index, outcome) => {
      outcomes[index] = outcome;
      add(index, outcome.findings);
    },
  });
  for (const [i, outcome] of outcomes.entries()) requireReached(configurations, jobs[i]!, outcome);
  tell('schedules', total, total, null);

  const mutants = options.mutants ? mutantJobs(jobs, outcomes, options.schedulesPerMutant ?? 400) : [];
  const killed: boolean[] = [];
  if (options.mutants) {
    let done = 0;
    await pool.run(mutants, {
      began: (job) => tell('mutants', done, mutants.length, job),
      ran: () => {},
      ended: (index, { findings }) => {
        killed[index] = findings.length > 0;
        done++;
      },
    });
    tell('mutants', done, mutants.length, null);
  }
  const survivors = mutants
    .filter((_, i) => !killed[i])
    .map(({ mutant: { id, kernel, where, text } }) => ({ id, kernel, where, text }));
  return {
    kernels: [...new Set(cases.flatMap(({ subject }) => subject.kernels))],
    configurations: cases.length,
    schedules: outcomes.reduce((sum, { schedules }) => sum + schedules, 0),
    findings: [...found.values()].sort((a, b) => a.job - b.job).map(({ finding }) => finding),
    mutants: {
      total: mutants.length,
      killed: mutants.length - survivors.length,
      survivors: survivors.filter(({ kernel }) => !runElsewhere.has(kernel)),
      // Of kernels that other configurations run too, which were not asked for: those may catch them.
      elsewhere: survivors.filter(({ kernel }) => runElsewhere.has(kernel)),
    },
    exhaustive: outcomes.flatMap(({ schedules, complete }, i) => {
      const job = jobs[i]!;
      return job.kind === 'exploration'
        ? [{ configuration: jobName(configurations, job), schedules, complete }]
        : [];
    }),
  };
}

/**
 * Each mutant runs in the configurations that have its operation, until it is caught; the shortest first, since
 * most are caught anywhere.
 */
function mutantJobs(
  jobs: readonly Job[],
  outcomes: readonly Outcome[],
  limit: number,
): Extract<Job, { kind: 'mutant' }>[] {
  const costs = new Map<number, number>();
  const mutants = new Map<number, readonly Mutant[]>();
  for (const [i, { steps, mutants: listed }] of outcomes.entries()) {
    const job = jobs[i]!;
    if (job.kind === 'mutant') continue;
    costs.set(job.configuration, steps);
    if (job.listMutants) mutants.set(job.configuration, listed);
  }
  const cost = (configuration: number): number => costs.get(configuration) ?? 0;
  const all = new Map<string, { mutant: Mutant; configurations: number[] }>();
  for (const configuration of [...mutants.keys()].sort((a, b) => cost(a) - cost(b))) {
    for (const mutant of mutants.get(configuration)!) {
      const known = all.get(mutant.id);
      if (known === undefined) all.set(mutant.id, { mutant, configurations: [configuration] });
      else known.configurations.push(configuration);
    }
  }
  return [...all.values()].map((job) => ({ kind: 'mutant', ...job, limit }));
}
