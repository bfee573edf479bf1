/** The parts of a machine. */
import { requireInteger } from '../../base/errors.js';
import type { Mode } from './compiled.js';
import type { Assumption, Site, SiteId } from './detector/detector.js';
import type { Random } from './random.js';
import { InOrder, PrioritySchedule, RandomSchedule, type Schedule } from './schedule.js';
import type { Watcher } from './watched.js';

/** How the machine decides who runs next. */
export type ScheduleName = 'in-order' | 'random' | 'priority';

export interface EngineOptions {
  /** Simulated GPUs, 1 to 128. */
  readonly ranks: number;
  /** `fast` checks nothing; `checked` finds races, wild accesses, divergence and hopeless waits. Default fast. */
  readonly mode?: Mode;
  /** Everything random comes from it; findings name it. Default '0'. */
  readonly seed?: string;
  /** Default: in order in fast mode, random in checked mode. */
  readonly schedule?: ScheduleName;
  /** Goes into findings: what was run. */
  readonly configuration?: string;
  /** Blocks that a GPU can hold at once, default 132. A kernel whose blocks wait for each other needs them all. */
  readonly residentBlocks?: number;
  /** Gives up after so many steps. Default: never in fast mode, 100 million in checked mode. */
  readonly stepLimit?: number;
  /** What GPUs are taken to order besides PTX's memory model. Default: nothing. */
  readonly assume?: readonly Assumption[];
  /** Checked mode: whether findings tell the lines of hosts' programs. Default true; it takes time at each access. */
  readonly hostLines?: boolean;
  /** Gets the lines that kernels print (`g.print`, and `printf` of PTX). Default: standard output has them. */
  readonly print?: (line: string) => void;
  /** Hears in checked mode what threads do, step by step: how a schedule is shown. `seen`: the 16 bytes around the place that an atomic load has read. */
  readonly watch?: (site: (id: SiteId) => Site, seen: { readonly i32: Int32Array }) => Watcher;
}

export function requireSteps(limit: number): number {
  return limit === Number.POSITIVE_INFINITY
    ? limit
    : requireInteger('stepLimit', limit, 1, Number.MAX_SAFE_INTEGER);
}

export function scheduleOf(schedule: ScheduleName, ranks: number, random: Random): Schedule {
  switch (schedule) {
    case 'in-order':
      return new InOrder();
    case 'random':
      return new RandomSchedule(ranks, random);
    case 'priority':
      return new PrioritySchedule(ranks, random);
  }
}
