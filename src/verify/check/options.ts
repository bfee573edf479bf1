/** How a check is run. The options of callers are checked before anything runs. */
import {
  requireFlag,
  requireFunction,
  requireInteger,
  requireObject,
  requireText,
} from '../../base/errors.js';
import type { Hearing } from './run.js';
import { requireList } from './subject.js';

export interface CheckOptions {
  /** Only subjects that run one of these kernels, or have one of these names. All by default. */
  readonly only?: readonly string[];
  /** Schedules a configuration. Default: as many as make about 800 in all, at least two. */
  readonly seeds?: number;
  /** Also run mutants. */
  readonly mutants?: boolean;
  /** Instead of seeds, try every schedule of the tiny configurations, up to this many each. */
  readonly exhaustive?: number;
  /** One schedule only, as a finding names it: 'configuration/random-17', or 'random-17' of every configuration. */
  readonly replay?: string;
  /** Gets the lines that kernels print in the schedule of `replay`. */
  readonly print?: Hearing['print'];
  /** Hears, step by step, what threads do in it: a new watcher for each configuration, as a `Trace` has one. */
  readonly watch?: Hearing['watch'];
  /** Most schedules a mutant may survive before it counts as a survivor. Default 400. */
  readonly schedulesPerMutant?: number;
  /** Threads that run schedules, each of which loads the subjects by itself. Default: this thread alone. */
  readonly workers?: CheckWorkers;
  readonly progress?: (progress: CheckProgress) => void;
}

export interface CheckWorkers {
  readonly count: number;
  /** The URL of the module that exports the subjects as `checkSubjects`. */
  readonly module: string;
}

export interface CheckProgress {
  readonly phase: 'schedules' | 'mutants';
  readonly done: number;
  readonly total: number;
  /** The schedule that is being run. */
  readonly what: string;
  readonly findings: number;
}

export function requireCheckOptions(options: CheckOptions): void {
  requireObject('options', options);
  const { only = [], mutants, replay, workers, progress, print, watch } = options;
  for (const [i, name] of requireList('only', only)) requireText(`only[${i}]`, name);
  for (const limit of ['seeds', 'exhaustive', 'schedulesPerMutant'] as const)
    if (options[limit] !== undefined) requireInteger(limit, options[limit], 1, 1_000_000);
  if (mutants !== undefined) requireFlag('mutants', mutants);
  if (replay !== undefined) requireText('replay', replay);
  if (progress !== undefined) requireFunction('progress', progress);
  if (print !== undefined) requireFunction('print', print);
  if (watch !== undefined) requireFunction('watch', watch);
  if (workers === undefined) return;
  requireObject('workers', workers);
  requireInteger('workers.count', workers.count, 1, 1024);
  requireText('workers.module', workers.module, 'the URL of a module');
}
