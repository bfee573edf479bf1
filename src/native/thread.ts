import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Transferable, Worker } from 'node:worker_threads';
import { openLibrary } from './library.js';

/** Starts a thread that runs a module of this package, or one that the caller wrote; `data` is its `workerData`. */
export function startThread(module: URL, data: unknown, transfer: readonly Transferable[] = []): Worker {
  const options = { workerData: data, transferList: [...transfer] };
  if (!module.pathname.endsWith('.ts')) return new Worker(module, options);
  // Run from source (the tests do), and a thread does not inherit the loader of its parent: it registers tsx itself.
  const tsx = join(dirname(createRequire(import.meta.url).resolve('tsx/esm/api')), 'index.mjs');
  const start = `import(${JSON.stringify(pathToFileURL(tsx).href)})
    .then(({ register }) => { register(); return import(${JSON.stringify(module.href)}); })`;
  return new Worker(start, { ...options, eval: true, execArgv: [] });
}

/** The module beside `from` (an `import.meta.url`) that is compiled with it: its name without an ending. */
export function moduleBeside(from: string, name: string): URL {
  return new URL(`${name}${from.endsWith('.ts') ? '.ts' : '.js'}`, from);
}

let schedYield: (() => number) | undefined;

/** Lets other threads have this processor for a moment. */
export function yieldProcessor(): void {
  schedYield ??= openLibrary(null, '').declare<() => number>('sched_yield', 'i32', []);
  schedYield();
}
