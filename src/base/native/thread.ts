import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { SHARE_ENV, type Transferable, Worker, type WorkerOptions } from 'node:worker_threads';
import { ArgumentError, requireInteger } from '../errors.js';
import { functionOfC } from './library.js';

/** Whether this is TypeScript, run from source, as the tests do. */
const fromSource = import.meta.url.endsWith('.ts');

/**
 * Starts a thread on a module: `new URL('./worker.js', import.meta.url)`. Run from source the file beside it is a `.ts`;
 * and since a thread does not inherit the loader of its parent, it registers tsx itself.
 */
export function startThread(module: URL, data: unknown, transferList: readonly Transferable[] = []): Worker {
  // A thread shares the environment of its process: Heddle tells some libraries their settings by variables.
  const given: WorkerOptions = { workerData: data, transferList: [...transferList], env: SHARE_ENV };
  if (!fromSource) return new Worker(module, given);
  return new Worker(importing(module), { ...given, eval: true, execArgv: [] });
}

/** How a thread is brought out of foreign calls before it ends: the functions of `steps` are called one after another. */
export interface Orderly {
  readonly steps: readonly (() => void)[];
  /** One shared word, which the thread raises by `stepDone`. */
  readonly done: Int32Array;
}

const orderly = new Set<Orderly>();
/**
 * The longest time for which the end of the process waits for its threads. A proxy takes less to deliver its last
 * writes.
 */
const longestEndMs = 3_000;

/**
 * When its process ends, Node.js terminates a thread wherever it is. Inside of a foreign call that is fatal: koffi cannot
 * hand to JavaScript what the call returns, and aborts the process. So a process that ends, in whatever way, first gets such
 * threads out of their calls: all through the first step, then all through the next, since endpoints of a process may share
 * memory. Call what this returns when the thread has ended.
 */
export function endOrderly(thread: Orderly): () => void {
  if (orderly.size === 0) process.on('exit', endAll);
  orderly.add(thread);
  return () => {
    if (orderly.delete(thread) && orderly.size === 0) process.off('exit', endAll);
  };
}

function endAll(): void {
  const end = performance.now() + longestEndMs;
  const most = Math.max(...[...orderly].map(({ steps }) => steps.length));
  for (let step = 0; step < most; step++) {
    for (const { steps } of orderly) steps[step]?.();
    for (const { steps, done } of orderly) {
      for (let at = Atomics.load(done, 0); at <= step && at < steps.length; at = Atomics.load(done, 0))
        if (Atomics.wait(done, 0, at, Math.max(0, end - performance.now())) === 'timed-out') return;
    }
  }
}

/** The thread calls this: it has done this number of its steps. */
export function stepDone(done: Int32Array, steps: number): void {
  Atomics.store(done, 0, steps);
  Atomics.notify(done, 0);
}

/** A program that imports a module and does no more. */
function importing(module: URL): string {
  if (!fromSource) return `import(${JSON.stringify(module.href)})`;
  const tsx = join(dirname(createRequire(import.meta.url).resolve('tsx/esm/api')), 'index.mjs');
  const source = module.href.replace(/\.js$/, '.ts');
  return `import(${JSON.stringify(pathToFileURL(tsx).href)})
    .then(({ register }) => { register(); return import(${JSON.stringify(source)}); })`;
}

/** Lets other threads have this processor for a moment. */
export const yieldProcessor: () => void = functionOfC('sched_yield', ['i32']);
const setAffinity = functionOfC('sched_setaffinity', ['i32', 'i32', 'u64', 'buffer']);

/** Keeps this thread on one processor of the machine. */
export function stayOn(processor: number): void {
  requireInteger('processor', processor, 0, 2 ** 16);
  const mask = new Uint8Array(8 * (Math.floor(processor / 64) + 1));
  mask[processor >> 3] = 1 << (processor & 7);
  if (setAffinity(0, mask.length, mask) !== 0)
    throw new ArgumentError('processor', processor, 'one that this process may run on (`taskset -p`)');
}

/**
 * Runs a module as a process of its own: `new URL('./trial.js', import.meta.url)`. The last line that it prints which begins with a
 * brace is the answer: libraries may print more. A crash, an exit or silence costs only that process.
 */
export function runApart(
  module: URL,
  timeoutMs: number,
  ...args: readonly string[]
): { readonly ok: true; readonly line: string } | { readonly ok: false; readonly reason: string } {
  const child = spawnSync(process.execPath, ['--input-type=module', '-e', importing(module), '--', ...args], {
    encoding: 'utf8',
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
    // The child must not preload the loaders of its parent (a test runner's, a profiler's), which NODE_OPTIONS names.
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  if (child.error) {
    const late = (child.error as NodeJS.ErrnoException).code === 'ETIMEDOUT';
    const what = late ? `did not answer within ${timeoutMs / 1000} s` : `failed: ${child.error.message}`;
    return { ok: false, reason: `the process of the trial ${what}` };
  }
  const line = child.stdout.split('\n').findLast((printed) => printed.startsWith('{'));
  if (child.status === 0 && line !== undefined) return { ok: true, line };
  if (child.status === 0) return { ok: false, reason: 'the process of the trial ended without an answer' };
  const end = child.signal ?? `exit code ${child.status}`;
  return {
    ok: false,
    reason: `it ended the process of the trial with ${end}: ${child.stderr.trim().split('\n').at(-1)}`,
  };
}
