/** The work of a check, as data: jobs that this thread does itself, or others do. */
import { getOrMake } from '../../base/maps.js';
import type { Assumption, Finding, HostSite, KernelModule } from '../../gpu/sim/index.js';
import { hostMutantsOf, mutateHosts } from './host-mutants.js';
import { mutantsOf, mutate } from './mutants.js';
import { type Hearing, runOnce, scheduleOf, seedOf } from './run.js';
import type { CheckConfiguration, Mutant } from './subject.js';

/** Configurations are named by their place among all that there are. */
export type Job =
  | {
      readonly kind: 'schedule';
      readonly configuration: number;
      readonly seed: string;
      /** Tell which mutants its kernels have. */
      readonly listMutants: boolean;
    }
  | {
      /** The mutant runs in these configurations in turn, until it is caught. */
      readonly kind: 'mutant';
      readonly mutant: Mutant;
      readonly configurations: readonly number[];
      /** Schedules that it may survive. */
      readonly limit: number;
    };

export interface Outcome {
  readonly findings: readonly Finding[];
  /** Steps of the last schedule. */
  readonly steps: number;
  /** Where they were asked for. */
  readonly mutants: readonly Mutant[];
}

/** A mutant may loop for ever; nothing that works takes so long. */
const mutantStepLimit = 2_000_000;

/** Does a job; `ran` is called after each schedule. Nobody hears a mutant. */
export function runJob(
  configurations: readonly CheckConfiguration[],
  job: Job,
  assume: readonly Assumption[],
  ran: () => void,
  hearing: Hearing = {},
): Promise<Outcome> {
  switch (job.kind) {
    case 'schedule':
      return runSchedule(configurations[job.configuration]!, job, ran, { ...hearing, assume });
    case 'mutant':
      return runMutant(configurations, job, assume, ran);
  }
}

/** The name of a job in progress and errors. */
export function jobName(configurations: readonly CheckConfiguration[], job: Job): string {
  if (job.kind === 'mutant') return job.mutant.id;
  const { name } = configurations[job.configuration]!;
  return job.kind === 'schedule' ? `${name}/${job.seed}` : name;
}

type JobOf<K extends Job['kind']> = Extract<Job, { readonly kind: K }>;

async function runSchedule(
  configuration: CheckConfiguration,
  { seed, listMutants }: JobOf<'schedule'>,
  ran: () => void,
  hearing: Hearing & { readonly assume: readonly Assumption[] },
): Promise<Outcome> {
  const kernels = new Kernels();
  const options = { seed, schedule: scheduleOf(seed), substitute: kernels.remember, ...hearing };
  // A listener hears a schedule once.
  const hostLines = listMutants || hearing.watch !== undefined || hearing.print !== undefined;
  let run = await runOnce(configuration, { ...options, hostLines });
  if (run.findings.length > 0 && !hostLines) {
    // The same schedule again: only what is found needs the lines of hosts, which take time in every run.
    const told = await runOnce(configuration, { ...options, hostLines: true });
    if (told.findings.length > 0) run = told;
  }
  const { findings, machine } = run;
  ran();
  return {
    findings,
    steps: machine.statistics.steps,
    mutants: listMutants ? kernels.mutants(machine.hostSites) : [],
  };
}

async function runMutant(
  all: readonly CheckConfiguration[],
  { mutant, configurations, limit }: JobOf<'mutant'>,
  assume: readonly Assumption[],
  ran: () => void,
): Promise<Outcome> {
  const mutated = new Map<KernelModule, KernelModule>();
  const substitute = (module: KernelModule) => getOrMake(mutated, module, () => mutate(module, mutant));
  const substituteHost = mutateHosts(mutant);
  let steps = 0;
  for (let n = 0; n < limit; n++) {
    const seed = seedOf(Math.floor(n / configurations.length));
    const configuration = all[configurations[n % configurations.length]!]!;
    const { findings, machine } = await runOnce(configuration, {
      ...{ seed, schedule: scheduleOf(seed), substitute, substituteHost, assume, hostLines: false },
      stepLimit: mutantStepLimit,
    });
    ({ steps } = machine.statistics);
    ran();
    if (findings.length > 0) return { findings, steps, mutants: [] };
  }
  return { findings: [], steps, mutants: [] };
}

/** Notes the kernels that a configuration loads: several may have one name. */
class Kernels {
  readonly #modules = new Set<KernelModule>();

  readonly remember = (module: KernelModule): KernelModule => {
    this.#modules.add(module);
    return module;
  };

  /** The mutants of these modules, each once, and of the proxies and other programs that ran beside them on hosts. */
  mutants(sites: readonly HostSite[]): Mutant[] {
    const all = [...[...this.#modules].flatMap(mutantsOf), ...hostMutantsOf(sites)];
    return [...new Map(all.map((mutant) => [mutant.id, mutant])).values()];
  }
}
