import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { HeddleError } from '../errors/index.js';
import { openLibrary } from '../native/index.js';
import { Core, type CoreInfo, type CoreOptions } from './core.js';
import { type Shared, word } from './shared.js';
import type { ControlReply, ControlRequest, WorkerData } from './worker.js';

/** The methods of a core that set things up; they are called rarely and answer before the call returns. */
export type ControlMethod =
  | 'addPeer'
  | 'removePeer'
  | 'losePeer'
  | 'register'
  | 'deregister'
  | 'stillLingering'
  | 'addRemote'
  | 'addGroup'
  | 'heapBytes';

/** How the front reaches its core: in a thread of its own, or driven by the caller's calls. */
export interface Driver {
  readonly info: CoreInfo;
  /** Whether a thread of its own makes the progress. */
  readonly threaded: boolean;
  call<M extends ControlMethod>(method: M, ...args: Parameters<Core[M]>): ReturnType<Core[M]>;
  /** There are commands to take. */
  commandsWritten(): void;
  /** One round of progress, if it is the caller who makes it. */
  progress(): boolean;
  /** Blocks this thread until something may have happened; `idle` counts the calls since something did. */
  pause(idle: number): void;
  close(): Promise<void>;
}

const schedYield = () => {
  yieldProcessor ??= openLibrary(null, '').declare<() => number>('sched_yield', 'i32', []);
  yieldProcessor();
};
let yieldProcessor: (() => number) | undefined;

/** The caller makes progress: nothing moves between its calls. For threads that poll anyway. */
export class CallerDriver implements Driver {
  readonly threaded = false;
  readonly info: CoreInfo;
  private readonly core: Core;

  constructor(options: CoreOptions) {
    this.core = new Core(options);
    this.info = this.core.info;
  }

  call<M extends ControlMethod>(method: M, ...args: Parameters<Core[M]>): ReturnType<Core[M]> {
    const target = this.core[method] as (...args: Parameters<Core[M]>) => ReturnType<Core[M]>;
    return target.apply(this.core, args);
  }

  commandsWritten(): void {
    this.core.takeCommands();
  }

  progress(): boolean {
    return this.core.progress();
  }

  pause(idle: number): void {
    if (idle > spinsBeforePause) schedYield();
  }

  async close(): Promise<void> {
    this.core.close();
  }
}

/** A dedicated thread makes progress; see worker.ts. */
export class WorkerDriver implements Driver {
  readonly threaded = true;
  private readonly control: Int32Array;
  private stopped = false;

  private constructor(
    readonly info: CoreInfo,
    shared: Shared,
    private readonly worker: Worker,
    private readonly port: MessagePort,
  ) {
    this.control = new Int32Array(shared.control);
  }

  static async start(options: CoreOptions, onDeath: (error: Error) => void): Promise<WorkerDriver> {
    const { port1, port2 } = new MessageChannel();
    const data: WorkerData = { options, port: port2 };
    const worker = startWorker(new URL(`./worker${extension}`, import.meta.url), data, [port2]);
    const died = new Promise<never>((_, reject) => {
      worker.once('error', reject);
      worker.once('exit', (code) =>
        reject(new HeddleError('HEDDLE_FABRIC', `its thread ended with ${code}`)),
      );
    });
    const first = new Promise<ControlReply>((resolve) => port1.once('message', resolve));
    const reply = await Promise.race([first, died]);
    // From here on answers are fetched synchronously, and only the thread keeps the process alive.
    port1.removeAllListeners('message');
    port1.unref();
    if (!reply.ok) {
      died.catch(() => {});
      throw new HeddleError(reply.code, reply.message);
    }
    const driver = new WorkerDriver(reply.value as CoreInfo, options.shared, worker, port1);
    died.catch((error) => {
      if (!driver.stopped) onDeath(error);
    });
    return driver;
  }

  call<M extends ControlMethod>(method: M, ...args: Parameters<Core[M]>): ReturnType<Core[M]> {
    const request: ControlRequest = { method, args };
    this.port.postMessage(request);
    Atomics.add(this.control, word.request, 1);
    this.commandsWritten();
    for (const begun = performance.now(); ; ) {
      const seen = Atomics.load(this.control, word.reply);
      const answer = receiveMessageOnPort(this.port);
      if (answer !== undefined) return this.unwrap(answer.message as ControlReply) as ReturnType<Core[M]>;
      Atomics.wait(this.control, word.reply, seen, controlTimeoutMs);
      if (performance.now() - begun > controlTimeoutMs) {
        throw new HeddleError('HEDDLE_FABRIC', `the engine's thread did not answer ${method}`);
      }
    }
  }

  private unwrap(reply: ControlReply): unknown {
    if (!reply.ok) throw new HeddleError(reply.code, reply.message);
    return reply.value;
  }

  commandsWritten(): void {
    if (Atomics.load(this.control, word.coreSleeps) !== 0) {
      Atomics.store(this.control, word.coreSleeps, 0);
      Atomics.notify(this.control, word.coreSleeps);
    }
  }

  progress(): boolean {
    return false;
  }

  pause(idle: number): void {
    if (idle < spinsBeforePause) return;
    const bell = Atomics.load(this.control, word.bell);
    Atomics.store(this.control, word.frontSleeps, 1);
    // The bell may have rung before the store; a short nap covers what this check would miss.
    Atomics.wait(this.control, word.bell, bell, 1);
    Atomics.store(this.control, word.frontSleeps, 0);
  }

  async close(): Promise<void> {
    this.stopped = true;
    const gone = new Promise((resolve) => this.worker.once('exit', resolve));
    Atomics.store(this.control, word.stop, 1);
    this.commandsWritten();
    await gone;
    this.port.close();
  }
}

const controlTimeoutMs = 60_000;
const spinsBeforePause = 500;

// Compiled, this module is JavaScript and its worker a file beside it. Run from source (the tests do), both are
// TypeScript, and a worker does not inherit the loader of its parent: it registers tsx itself.
const extension = import.meta.url.endsWith('.ts') ? '.ts' : '.js';

function startWorker(url: URL, data: WorkerData, transferList: MessagePort[]): Worker {
  if (extension === '.js') return new Worker(url, { workerData: data, transferList });
  const tsx = join(dirname(createRequire(import.meta.url).resolve('tsx/esm/api')), 'index.mjs');
  const start = `import(${JSON.stringify(pathToFileURL(tsx).href)})
    .then(({ register }) => { register(); return import(${JSON.stringify(pathToFileURL(fileURLToPath(url)).href)}); })`;
  return new Worker(start, { eval: true, workerData: data, transferList, execArgv: [] });
}
