/**
 * The check: runs subjects in many configurations under many schedules, and shows that it would have seen mistakes
 * by running mutants of their kernels until each is caught.
 */
import { type Finding, findingKey } from '../../gpu/sim/index.js';
import { causesOf } from './causes.js';
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
  const schedules = schedulesOf(
    all.filter(({ configuration }) => isWanted(configuration)),
    options,
  );
  const configurations = all.map(({ configuration }) => configuration);
  const pool = poolOf(configurations, options);
  try {
    const others = subjects.filter(({ configurations }) => !configurations.every(isWanted));
    return await run(
      configurations,
      schedules,
      pool,
      options,
      new Set(others.flatMap(({ kernels }) => kernels)),
    );
  } finally {
    await pool.close();
  }
}

interface Schedules {
  readonly cases: readonly Case[];
  readonly jobs: readonly Job[];
}

function schedulesOf(wanted: readonly Case[], { replay, seeds, mutants = false }: CheckOptions): Schedules {
  if (replay !== undefined) {
    const { cases, seed } = replayOf(replay, wanted);
    return { cases, jobs: jobsOf(cases, [seed], mutants) };
  }
  const count = seeds ?? Math.max(fewestSeeds, Math.round(defaultSchedules / wanted.length));
  const all = Array.from({ length: count }, (_, i) => seedOf(i));
  return { cases: wanted, jobs: jobsOf(wanted, all, mutants) };
}

/** Early findings come from all configurations, and each compiles its kernels once for several seeds. */
function jobsOf(cases: readonly Case[], seeds: readonly string[], mutants: boolean): Job[] {
  return inRows(seeds).flatMap((row) =>
    cases.flatMap(({ index }) =>
      row.map((seed): Job => {
        return {
          kind: 'schedule',
          configuration: index,
          seed,
          listMutants: mutants && seed === seeds[0],
        };
      }),
    ),
  );
}

function poolOf(configurations: readonly CheckConfiguration[], options: CheckOptions): Pool {
  const { workers, replay, print, watch, assume = [] } = options;
  const count = workers?.count ?? 1;
  // One schedule is run sooner than a thread starts.
  if (replay !== undefined)
    return thisThread(configurations, assume, { ...(print && { print }), ...(watch && { watch }) });
  if (workers === undefined || count === 1) return thisThread(configurations, assume, {});
  return threads(count, workers.module, configurations, assume);
}

async function run(
  configurations: readonly CheckConfiguration[],
  { cases, jobs }: Schedules,
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
      tell('schedules', done, jobs.length, latest);
    },
    ran: () => {
      done++;
      tell('schedules', done, jobs.length, latest);
    },
    ended: (index, outcome) => {
      outcomes[index] = outcome;
      add(index, outcome.findings);
    },
  });
  tell('schedules', jobs.length, jobs.length, null);

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
  const findings = [...found.values()].sort((a, b) => a.job - b.job).map(({ finding }) => finding);
  const seeds = [...new Set(jobs.flatMap((job) => (job.kind === 'schedule' ? [job.seed] : [])))];
  const survivors = mutants
    .filter((_, i) => !killed[i])
    .map(({ mutant: { id, kernel, where, text } }) => ({ id, kernel, where, text }));
  return {
    kernels: [...new Set(cases.flatMap(({ subject }) => subject.kernels))],
    configurations: cases.length,
    schedules: outcomes.length,
    findings,
    causes: await causesOf(findings, configurations, seeds, options.assume ?? []),
    mutants: {
      total: mutants.length,
      killed: mutants.length - survivors.length,
      survivors: survivors.filter(({ kernel }) => !runElsewhere.has(kernel)),
      // Of kernels that other configurations run too, which were not asked for: those may catch them.
      elsewhere: survivors.filter(({ kernel }) => runElsewhere.has(kernel)),
    },
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
