/**
 * The check: runs subjects in many configurations under many schedules, and shows that it would have seen mistakes
 * by running mutants of their kernels until each is caught.
 */
import { HeddleError } from '../errors/index.js';
import type { IrModule } from '../lang/index.js';
import type { Finding } from './detector.js';
import { type Exploration, explore } from './exhaustive.js';
import { keyOf } from './findings.js';
import { type MachineOptions, SimMachine } from './machine.js';
import { type Mutant, mutantsOf } from './mutants.js';

/** One way to run a subject's kernels. */
export interface CheckConfiguration {
  readonly name: string;
  readonly ranks: number;
  /** Blocks that a GPU holds at once; fewer than a launch has shows whether its blocks depend on each other. */
  readonly residentBlocks?: number;
  /** Small enough for every schedule to be tried. */
  readonly tiny?: boolean;
  /**
   * Runs the host programs of all ranks, several rounds back to back, and verifies the results: throws
   * `WrongResult`, or anything else for a failure. It must not depend on anything but the machine.
   */
  run(machine: SimMachine): Promise<void>;
}

export interface CheckSubject {
  readonly name: string;
  /** Names of the kernels that its configurations run. */
  readonly kernels: readonly string[];
  readonly configurations: readonly CheckConfiguration[];
}

/** What a configuration throws when the kernels ran and computed something else than they should. */
export class WrongResult extends HeddleError {
  constructor(message: string) {
    super('HEDDLE_WRONG_RESULT', message);
  }
}

export interface CheckOptions {
  /** Only subjects that run one of these kernels, or have one of these names. All by default. */
  readonly only?: readonly string[];
  /** Schedules a configuration. Default: as many as make 2,000 in all. */
  readonly seeds?: number;
  /** Also run mutants. */
  readonly mutants?: boolean;
  /** Instead of seeds, try every schedule of the tiny configurations, up to this many each. */
  readonly exhaustive?: number;
  /** One schedule only: 'random-17', or 'configuration/random-17'. */
  readonly replay?: string;
  /** Most schedules a mutant may survive before it counts as a survivor. Default 400. */
  readonly schedulesPerMutant?: number;
  readonly progress?: (progress: CheckProgress) => void;
}

export interface CheckProgress {
  readonly phase: 'schedules' | 'mutants';
  readonly done: number;
  readonly total: number;
  /** What is being run. */
  readonly what: string;
  readonly findings: number;
}

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

const defaultSchedules = 2000;
/** A mutant may loop for ever; nothing that works takes so long. */
const mutantStepLimit = 2_000_000;

interface Case {
  readonly subject: CheckSubject;
  readonly configuration: CheckConfiguration;
}

export async function check(
  subjects: readonly CheckSubject[],
  options: CheckOptions = {},
): Promise<CheckReport> {
  const replay = options.replay === undefined ? null : parseReplay(options.replay);
  const cases = subjects
    .filter((subject) => isWanted(subject, options.only))
    .flatMap((subject) => subject.configurations.map((configuration) => ({ subject, configuration })))
    .filter(
      ({ configuration }) =>
        replay?.configuration === undefined || configuration.name === replay.configuration,
    );
  if (cases.length === 0) {
    const known = subjects.flatMap((subject) => [subject.name, ...subject.kernels]);
    throw new HeddleError('HEDDLE_CHECK', `nothing to check; there are: ${[...new Set(known)].join(', ')}`);
  }
  const run = new CheckRun(cases, options);
  const nth = replay === null ? null : /^exhaustive-(\d+)$/.exec(replay.seed);
  if (nth !== null) await run.exhaust(Number(nth[1]), Number(nth[1]));
  else if (replay !== null) await run.seeds([replay.seed]);
  else if (options.exhaustive !== undefined) await run.exhaust(options.exhaustive);
  else {
    const count = options.seeds ?? Math.ceil(defaultSchedules / cases.length);
    await run.seeds(Array.from({ length: count }, (_, i) => seedOf(i)));
  }
  if (options.mutants) await run.mutants(options.schedulesPerMutant ?? 400);
  return run.report();
}

/** The name of the n-th schedule; random and priority schedules take turns. */
export function seedOf(n: number): string {
  return `${n % 2 === 0 ? 'random' : 'priority'}-${n}`;
}

function isWanted(subject: CheckSubject, only: readonly string[] | undefined): boolean {
  if (only === undefined || only.length === 0) return true;
  return only.includes(subject.name) || subject.kernels.some((kernel) => only.includes(kernel));
}

function parseReplay(text: string): { configuration?: string; seed: string } {
  const slash = text.lastIndexOf('/');
  return slash < 0 ? { seed: text } : { configuration: text.slice(0, slash), seed: text.slice(slash + 1) };
}

/** Runs a configuration once. What it throws becomes a finding if the machine has none. */
export async function runOnce(
  configuration: CheckConfiguration,
  options: Pick<MachineOptions, 'seed' | 'schedule' | 'substitute' | 'stepLimit'>,
): Promise<{ readonly findings: readonly Finding[]; readonly machine: SimMachine }> {
  const machine = SimMachine.create({
    ...options,
    ranks: configuration.ranks,
    mode: 'checked',
    configuration: configuration.name,
    ...(configuration.residentBlocks === undefined ? {} : { residentBlocks: configuration.residentBlocks }),
  });
  let thrown: Finding | null = null;
  try {
    await inTime(configuration.run(machine));
  } catch (error) {
    thrown = {
      seed: machine.seed,
      configuration: configuration.name,
      kind: error instanceof WrongResult ? 'wrong-result' : 'failure',
      message: error instanceof Error ? error.message : String(error),
      stale: machine.staleReads,
    };
  }
  const { findings } = machine;
  return { findings: thrown !== null && findings.length === 0 ? [thrown] : findings, machine };
}

/** A host program may wait for what the machine knows nothing of; a check must end all the same. */
const patienceMs = 120_000;

async function inTime(run: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new HeddleError('HEDDLE_CHECK', 'the host programs did not end within two minutes')),
      patienceMs,
    );
  });
  try {
    await Promise.race([run, tooLate]);
  } finally {
    clearTimeout(timer);
  }
}

class CheckRun {
  private readonly findings: Finding[] = [];
  private readonly seen = new Set<string>();
  private readonly modules = new Map<CheckConfiguration, Set<IrModule>>();
  /** Steps of the last run of each configuration. */
  private readonly costs = new Map<CheckConfiguration, number>();
  private readonly explorations: (Exploration & { readonly configuration: string })[] = [];
  private readonly survivors: Mutant[] = [];
  private mutantCount = 0;
  private schedules = 0;

  constructor(
    private readonly cases: readonly Case[],
    private readonly options: CheckOptions,
  ) {}

  private add(findings: readonly Finding[]): void {
    for (const finding of findings) {
      const key = keyOf(finding);
      if (this.seen.has(key)) continue;
      this.seen.add(key);
      this.findings.push(finding);
    }
  }

  private tell(phase: CheckProgress['phase'], done: number, total: number, what: string): void {
    this.options.progress?.({ phase, done, total, what, findings: this.findings.length });
  }

  /** Every configuration under every seed; seeds outermost, so that early findings come from all of them. */
  async seeds(seeds: readonly string[]): Promise<void> {
    const total = seeds.length * this.cases.length;
    for (const seed of seeds) {
      for (const { configuration } of this.cases) {
        this.tell('schedules', this.schedules, total, `${configuration.name}/${seed}`);
        const schedule = scheduleOf(seed);
        const { findings, machine } = await runOnce(configuration, {
          seed,
          schedule,
          substitute: (module) => this.remember(configuration, module),
        });
        this.add(findings);
        this.costs.set(configuration, machine.statistics.steps);
        this.schedules++;
      }
    }
    this.tell('schedules', total, total, '');
  }

  private remember(configuration: CheckConfiguration, module: IrModule): IrModule {
    const known = this.modules.get(configuration);
    if (known === undefined) this.modules.set(configuration, new Set([module]));
    else if (![...known].some((m) => m.name === module.name)) known.add(module);
    return module;
  }

  /** Schedules `first` to `limit` of the tiny configurations; those before must run too, as each leads to the next. */
  async exhaust(limit: number, first = 1): Promise<void> {
    const tiny = this.cases.filter(({ configuration }) => configuration.tiny);
    for (const { configuration } of tiny) {
      let n = 0;
      const exploration = await explore(limit, async (schedule) => {
        this.tell('schedules', n++, limit, configuration.name);
        const { findings } = await runOnce(configuration, {
          seed: `exhaustive-${n}`,
          schedule,
          substitute: (module) => this.remember(configuration, module),
        });
        if (n >= first) this.add(findings);
        this.schedules++;
      });
      this.explorations.push({ configuration: configuration.name, ...exploration });
    }
  }

  /**
   * Each mutant runs in the configurations that have its operation, until it is caught; the shortest first, since
   * most are caught anywhere.
   */
  async mutants(limit: number): Promise<void> {
    const mutants = new Map<string, { mutant: Mutant; cases: CheckConfiguration[] }>();
    const cost = ({ configuration }: Case) => this.costs.get(configuration) ?? 0;
    for (const { configuration } of this.cases.toSorted((a, b) => cost(a) - cost(b))) {
      for (const module of this.modules.get(configuration) ?? []) {
        for (const mutant of mutantsOf(module)) {
          const entry = mutants.get(mutant.id);
          if (entry === undefined) mutants.set(mutant.id, { mutant, cases: [configuration] });
          else entry.cases.push(configuration);
        }
      }
    }
    this.mutantCount = mutants.size;
    let done = 0;
    for (const { mutant, cases } of mutants.values()) {
      this.tell('mutants', done++, mutants.size, mutant.id);
      if (!(await this.isKilled(mutant, cases, limit))) this.survivors.push(mutant);
    }
    this.tell('mutants', done, mutants.size, '');
  }

  private async isKilled(
    mutant: Mutant,
    cases: readonly CheckConfiguration[],
    limit: number,
  ): Promise<boolean> {
    const mutated = new Map<IrModule, IrModule>();
    const substitute = (module: IrModule) => {
      let result = mutated.get(module);
      if (result === undefined) {
        result = mutant.apply(module);
        mutated.set(module, result);
      }
      return result;
    };
    for (let n = 0; n < limit; n++) {
      const seed = seedOf(Math.floor(n / cases.length));
      const { findings } = await runOnce(cases[n % cases.length]!, {
        seed,
        schedule: scheduleOf(seed),
        substitute,
        stepLimit: mutantStepLimit,
      });
      if (findings.length > 0) return true;
    }
    return false;
  }

  report(): CheckReport {
    return {
      kernels: [...new Set(this.cases.flatMap(({ subject }) => subject.kernels))],
      configurations: this.cases.length,
      schedules: this.schedules,
      findings: this.findings,
      mutants: {
        total: this.mutantCount,
        killed: this.mutantCount - this.survivors.length,
        survivors: this.survivors.map(({ id, where, text }) => ({ id, where, text })),
      },
      exhaustive: this.explorations,
    };
  }
}

function scheduleOf(seed: string): 'random' | 'priority' {
  return seed.startsWith('priority') ? 'priority' : 'random';
}
