/** The workers of a check: this thread, or several others. The result is the same. */
import type { Worker } from 'node:worker_threads';
import { HeddleError } from '../../base/errors.js';
import { startThread } from '../../base/native/index.js';
import type { Assumption } from '../../gpu/sim/index.js';
import { type Job, jobName, type Outcome, runJob } from './jobs.js';
import type { Hearing } from './run.js';
import type { CheckConfiguration } from './subject.js';

/** Is told how the jobs go. They end in any order. */
export interface Watcher {
  began(job: Job): void;
  ran(): void;
  ended(index: number, outcome: Outcome): void;
}

export interface Pool {
  run(jobs: readonly Job[], watcher: Watcher): Promise<void>;
  close(): Promise<void>;
}

export const thisThread = (
  configurations: readonly CheckConfiguration[],
  assume: readonly Assumption[],
  hearing: Hearing,
): Pool => ({
  async run(jobs, watcher) {
    for (const [index, job] of jobs.entries()) {
      watcher.began(job);
      watcher.ended(index, await runJob(configurations, job, assume, () => watcher.ran(), hearing));
    }
  },
  async close() {},
});

/** The data with which a thread starts. Configurations are functions, so it gets them from their module by itself. */
export interface WorkerStart {
  /** The URL of a module that exports `checkSubjects`. */
  readonly module: string;
  /** Names of its configurations: those that the jobs mean. */
  readonly names: readonly string[];
  readonly assume: readonly Assumption[];
}

/** The messages of a thread: it has loaded its modules, it has run one schedule, or it has done its job. */
export type WorkerReport =
  | { readonly kind: 'loaded' | 'ran' }
  | { readonly kind: 'ended'; readonly outcome: Outcome };

/** Several threads, which start when they are first needed. */
export function threads(
  count: number,
  module: string,
  configurations: readonly CheckConfiguration[],
  assume: readonly Assumption[],
): Pool {
  /** `settled`: the thread has loaded, or has ended before. */
  const started: { readonly thread: Worker; readonly settled: Promise<void> }[] = [];
  const start: WorkerStart = { module, names: configurations.map(({ name }) => name), assume };

  /** Gives one thread job after job, until none is left. */
  const work = (thread: Worker, take: (thread: Worker) => Queued | undefined, watcher: Watcher) =>
    new Promise<void>((resolve, reject) => {
      let current: Queued | undefined;
      const next = (): void => {
        current = take(thread);
        if (current === undefined) {
          thread.off('message', told).off('error', failed).off('exit', ended);
          resolve();
        } else {
          watcher.began(current.job);
          thread.postMessage(current.job);
        }
      };
      const told = (report: WorkerReport): void => {
        if (report.kind === 'ran') watcher.ran();
        else if (report.kind === 'ended') {
          watcher.ended(current!.index, report.outcome);
          next();
        }
      };
      const died = (why: string): void => {
        const during = jobName(configurations, current!.job);
        reject(new HeddleError('HEDDLE_CHECK', `a worker died during ${during}: ${why}`));
      };
      const failed = (error: Error): void => died(error.message);
      const ended = (code: number): void => died(`it ended with exit code ${code}`);
      thread.on('message', told).on('error', failed).on('exit', ended);
      next();
    });

  return {
    async run(jobs, watcher) {
      while (started.length < Math.min(count, jobs.length)) {
        const thread = startThread(new URL('./worker.js', import.meta.url), start);
        const settled = new Promise<void>((resolve) => {
          thread.once('message', () => resolve()).once('exit', () => resolve());
        });
        started.push({ thread, settled });
      }
      const take = queueOf(jobs);
      await Promise.all(started.map(({ thread }) => work(thread, take, watcher)));
    },
    async close() {
      // A thread that is terminated while it loads a native addon (koffi) aborts the process.
      await Promise.all(started.map(({ thread, settled }) => settled.then(() => thread.terminate())));
    },
  };
}

interface Queued {
  readonly index: number;
  readonly job: Job;
}

/**
 * Jobs in order; but a thread gets those of a configuration that it has run before, or that nobody has, as long as
 * there are any: each configuration's kernels are compiled where it runs.
 */
function queueOf(jobs: readonly Job[]): (thread: Worker) => Queued | undefined {
  const left: Queued[] = jobs.map((job, index) => ({ index, job }));
  const owners = new Map<number, Worker>();
  return (thread) => {
    const own = left.findIndex(({ job }) => {
      return job.kind === 'mutant' || (owners.get(job.configuration) ?? thread) === thread;
    });
    // The job to which another thread would come last is taken from it first.
    const [taken] = left.splice(own < 0 ? left.length - 1 : own, 1);
    if (taken !== undefined && taken.job.kind !== 'mutant') {
      const { configuration } = taken.job;
      if (!owners.has(configuration)) owners.set(configuration, thread);
    }
    return taken;
  };
}
