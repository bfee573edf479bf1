/** The workers of a check: this thread, or several others. The result is the same. */
import type { Worker } from 'node:worker_threads';
import { HeddleError } from '../../base/errors.js';
import { startThread } from '../../base/native/index.js';
import { type Job, jobName, type Outcome, runJob } from './jobs.js';
import type { Hearing } from './run.js';
import type { CheckConfiguration } from './subject.js';

/** Is told how the jobs go. They end in any order. */
export interface Watcher {
  began(job: Job): void;
  /** One schedule has been run. */
  ran(): void;
  ended(index: number, outcome: Outcome): void;
}

export interface Pool {
  run(jobs: readonly Job[], watcher: Watcher): Promise<void>;
  close(): Promise<void>;
}

/** This thread, one job after the other. */
export class ThisThread implements Pool {
  readonly #configurations: readonly CheckConfiguration[];
  readonly #hearing: Hearing;

  constructor(configurations: readonly CheckConfiguration[], hearing: Hearing) {
    this.#configurations = configurations;
    this.#hearing = hearing;
  }

  async run(jobs: readonly Job[], watcher: Watcher): Promise<void> {
    for (const [index, job] of jobs.entries()) {
      watcher.began(job);
      watcher.ended(index, await runJob(this.#configurations, job, () => watcher.ran(), this.#hearing));
    }
  }

  async close(): Promise<void> {}
}

/** The data with which a thread starts. Configurations are functions, so it gets them from their module by itself. */
export interface WorkerStart {
  /** The URL of a module that exports `checkSubjects`. */
  readonly module: string;
  /** Names of its configurations: those that the jobs mean. */
  readonly names: readonly string[];
}

/** The messages of a thread: it has run one schedule, or it has done its job. */
export type WorkerReport = { readonly kind: 'ran' } | { readonly kind: 'ended'; readonly outcome: Outcome };

/** Several threads, which start when they are first needed. */
export class Threads implements Pool {
  readonly #threads: Worker[] = [];
  readonly #count: number;
  readonly #module: string;
  readonly #configurations: readonly CheckConfiguration[];

  constructor(count: number, module: string, configurations: readonly CheckConfiguration[]) {
    this.#count = count;
    this.#module = module;
    this.#configurations = configurations;
  }

  async run(jobs: readonly Job[], watcher: Watcher): Promise<void> {
    while (this.#threads.length < Math.min(this.#count, jobs.length)) this.#threads.push(this.#start());
    const queue = new Queue(jobs);
    await Promise.all(this.#threads.map((thread) => this.#work(thread, queue, watcher)));
  }

  async close(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.terminate()));
  }

  #start(): Worker {
    const start: WorkerStart = { module: this.#module, names: this.#configurations.map(({ name }) => name) };
    return startThread(new URL('./worker.js', import.meta.url), start);
  }

  /** Gives one thread job after job, until none is left. */
  #work(thread: Worker, queue: Queue, watcher: Watcher): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      let current: Queued | undefined;
      const next = (): void => {
        current = queue.take(thread);
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
        else {
          watcher.ended(current!.index, report.outcome);
          next();
        }
      };
      const died = (why: string): void => {
        const during = jobName(this.#configurations, current!.job);
        reject(new HeddleError('HEDDLE_CHECK', `a worker died during ${during}: ${why}`));
      };
      const failed = (error: Error): void => died(error.message);
      const ended = (code: number): void => died(`it ended with exit code ${code}`);
      thread.on('message', told).on('error', failed).on('exit', ended);
      next();
    });
  }
}

interface Queued {
  readonly index: number;
  readonly job: Job;
}

/**
 * Jobs in order; but a thread gets those of a configuration that it has run before, or that nobody has, as long as
 * there are any: each configuration's kernels are compiled where it runs.
 */
class Queue {
  readonly #left: Queued[];
  readonly #owners = new Map<number, Worker>();

  constructor(jobs: readonly Job[]) {
    this.#left = jobs.map((job, index) => ({ index, job }));
  }

  take(thread: Worker): Queued | undefined {
    const own = this.#left.findIndex(({ job }) => {
      return job.kind === 'mutant' || (this.#owners.get(job.configuration) ?? thread) === thread;
    });
    // The job to which another thread would come last is taken from it first.
    const [taken] = this.#left.splice(own < 0 ? this.#left.length - 1 : own, 1);
    if (taken !== undefined && taken.job.kind !== 'mutant') {
      const { configuration } = taken.job;
      if (!this.#owners.has(configuration)) this.#owners.set(configuration, thread);
    }
    return taken;
  }
}
