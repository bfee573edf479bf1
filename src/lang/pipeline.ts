/**
 * A ring of stages in shared memory that some threads fill and others empty. Each stage has two mbarriers, *full* and *empty*;
 * both sides count the same steps from 0 on, and step n has stage n % stages, whose mbarriers are in phase n / stages.
 */
import { requireInteger, requireObject, requireOneOf } from '../base/errors.js';
import { device } from './define.js';
import { pointer, record } from './header.js';

/** Most stages that there can be: two mbarriers each, beside their tiles. */
const mostStages = 64;
/** The mbarriers of a ring, one of each for a stage. */
const gates = record({ full: pointer('u64'), empty: pointer('u64') });

/**
 * Device functions for a ring: they come to a kernel through `using`, and take its mbarriers, `{ full, empty }`, each of which is
 * `g.shared('u64', stages)`. Of each stage `fills` threads arrive when it is full (with `g.mbarrier.expect`, where the copy engine fills it), and
 * `empties` when it may be filled again. Say `readers: 'threads'` where the copy engine fills stages that threads read by ordinary loads: the
 * engine has a path to memory of its own, so each reader fences its reads before it releases the stage.
 */
export function pipeline(options: {
  readonly stages: number;
  readonly fills?: number;
  readonly empties: number;
  readonly readers?: 'tensor cores' | 'threads';
}) {
  requireObject('options', options, '{ stages, empties }');
  const STAGES = requireInteger('stages', options.stages, 1, mostStages);
  const FILLS = requireInteger('fills', options.fills ?? 1, 1, 1024);
  const EMPTIES = requireInteger('empties', options.empties, 1, 1024);
  const readers = requireOneOf('readers', options.readers ?? 'tensor cores', ['tensor cores', 'threads']);
  const FENCES = readers === 'threads';
  const ofStep = { params: { gates, step: 'u32' }, using: { STAGES } } as const;
  return {
    stages: STAGES,

    /** One thread does so, and a barrier of the block makes it known to the others. */
    start: device({ params: { gates }, using: { STAGES, FILLS, EMPTIES } }, (g, { gates }, U) => {
      for (const stage of g.unroll(U.STAGES)) {
        g.mbarrier.init(gates.full.at(stage), U.FILLS);
        g.mbarrier.init(gates.empty.at(stage), U.EMPTIES);
      }
    }),

    /** Waits until the stage of a step may be filled; returns it. */
    acquire: device({ ...ofStep, returns: 'u32' }, (g, { gates, step }, { STAGES }) => {
      const stage = step % STAGES;
      // A phase that never began counts as over: the first round waits for nobody.
      g.mbarrier.await(gates.empty.at(stage), ((step / STAGES) & 1) ^ 1);
      return stage;
    }),

    /** Waits until the stage of a step is full; returns it. */
    wait: device({ ...ofStep, returns: 'u32' }, (g, { gates, step }, { STAGES }) => {
      const stage = step % STAGES;
      g.mbarrier.await(gates.full.at(stage), (step / STAGES) & 1);
      return stage;
    }),

    /** The calling thread has filled its part of the stage of a step, other than by the copy engine. */
    commit: device(ofStep, (g, { gates, step }, { STAGES }) => {
      g.mbarrier.arrive(gates.full.at(step % STAGES));
    }),

    /** The calling thread has done with the stage of a step. */
    release: device({ ...ofStep, using: { STAGES, FENCES } }, (g, { gates, step }, { STAGES, FENCES }) => {
      if (FENCES) g.proxyFence('shared');
      g.mbarrier.arrive(gates.empty.at(step % STAGES));
    }),
  };
}
