/** How a check is run. */
import type { Assumption } from '../../gpu/sim/index.js';
import type { Hearing } from './run.js';

export interface CheckOptions {
  /** Only subjects that run one of these kernels, or have one of these names, and configurations of these names. All by default. */
  readonly only?: readonly string[];
  /** Schedules a configuration. Default: as many as make about 800 in all, at least two. */
  readonly seeds?: number;
  readonly mutants?: boolean;
  /** Rules that GPUs keep though PTX does not ask for them: what holds by them is no finding. Default: none. */
  readonly assume?: readonly Assumption[];
  /** One schedule only, as a finding names it: 'configuration/random-17', or 'random-17' of every configuration. */
  readonly replay?: string;
  /** Gets the lines that kernels print in the schedule of `replay`. */
  readonly print?: Hearing['print'];
  /** Hears, step by step, what threads do in it: a new watcher for each configuration, as a `Trace` has one. */
  readonly watch?: Hearing['watch'];
  /** Most schedules a mutant may survive before it counts as a survivor. Default 400. */
  readonly schedulesPerMutant?: number;
  /**
   * Threads that run schedules, each of which loads the subjects by itself, from the URL of a module that exports them as
   * `checkSubjects`. Default: this thread alone.
   */
  readonly workers?: { readonly count: number; readonly module: string };
  readonly progress?: (progress: CheckProgress) => void;
}

export interface CheckProgress {
  readonly phase: 'schedules' | 'mutants';
  readonly done: number;
  readonly total: number;
  /** The schedule that is being run. */
  readonly what: string;
  readonly findings: number;
}
