import { setImmediate } from 'node:timers/promises';
import { MessageChannel, type MessagePort, receiveMessageOnPort, type Worker } from 'node:worker_threads';
import { HeddleError } from '../../../base/errors.js';
import { endOrderly, startThread, yieldProcessor } from '../../../base/native/index.js';
import { type Core, type CoreInfo, type CoreOptions, createCore } from '../core/core.js';
import { type Shared, stoppedWord, word } from '../core/shared.js';
import type { ControlReply, ControlRequest, WorkerData } from '../core/worker.js';

/** The methods of a core that set things up; they are called rarely and answer before the call returns. */
type ControlMethod =
  | 'addPeer'
  | 'removePeer'
  | 'losePeer'
  | 'register'
  | 'deregister'
  | 'stillLingering'
  | 'addRemote'
  | 'addGroup';

/** How the caller reaches its core: in a thread of its own, or driven by the caller's calls. */
export interface Driver {
  readonly info: CoreInfo;
  call<M extends ControlMethod>(method: M, ...args: Parameters<Core[M]>): ReturnType<Core[M]>;
  /** There are commands to take. */
  commandsWritten(): void;
  /** One round of progress, if it is the caller who makes it. */
  progress(): boolean;
  /** The number of events so far. Ask for it before you look whether your event has happened. */
  heard(): number;
  /**
   * Blocks this thread until `missing` more events than `heard` may have happened, or for a moment. `missing` is 0 if
   * the core needs no time for what is awaited. `idle` counts the calls since anything happened. True when it slept.
   */
  pause(idle: number, heard: number, missing: number): boolean;
  /** The same without blocking. */
  rest(idle: number, heard: number, missing: number): Promise<void>;
  close(): Promise<void>;
}

/** The caller makes progress: nothing moves between its calls. For threads that poll anyway. */
export class CallerDriver implements Driver {
  readonly info: CoreInfo;
  readonly #core: Core;

  constructor(options: CoreOptions) {
    this.#core = createCore(options);
    this.info = this.#core.info;
  }

  call<M extends ControlMethod>(method: M, ...args: Parameters<Core[M]>): ReturnType<Core[M]> {
    const target = this.#core[method] as (...args: Parameters<Core[M]>) => ReturnType<Core[M]>;
    return target.apply(this.#core, args);
  }

  commandsWritten(): void {
    this.#core.takeCommands();
  }

  progress(): boolean {
    return this.#core.progress();
  }

  heard(): number {
    return 0;
  }

  pause(idle: number): boolean {
    if (idle > spinsBeforePause) yieldProcessor();
    return false;
  }

  /** Nobody else makes progress: comes back as soon as the event loop has had its turn. */
  async rest(idle: number): Promise<void> {
    this.pause(idle);
    await setImmediate();
  }

  async close(): Promise<void> {
    this.#core.close();
  }
}

/** A dedicated thread makes progress; see worker.ts. */
export class WorkerDriver implements Driver {
  readonly #control: Int32Array;
  #stopped = false;
  readonly #worker: Worker;
  readonly #port: MessagePort;

  private constructor(
    readonly info: CoreInfo,
    shared: Shared,
    worker: Worker,
    port: MessagePort,
  ) {
    this.#worker = worker;
    this.#port = port;
    this.#control = new Int32Array(shared.control);
  }

  static async start(options: CoreOptions, onDeath: (error: Error) => void): Promise<WorkerDriver> {
    const { port1, port2 } = new MessageChannel();
    const data: WorkerData = { options, port: port2 };
    const worker = startThread(new URL('../core/worker.js', import.meta.url), data, [port2]);
    const control = new Int32Array(options.shared.control);
    const steps = [() => stop(control)];
    worker.once('exit', endOrderly({ steps, done: stoppedWord(options.shared) }));
    const died = new Promise<never>((_, reject) => {
      worker.once('error', reject);
      worker.once('exit', (code) =>
        reject(new HeddleError('HEDDLE_FABRIC', `the engine's thread ended with exit code ${code}`)),
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
      if (!driver.#stopped) onDeath(error);
    });
    return driver;
  }

  call<M extends ControlMethod>(method: M, ...args: Parameters<Core[M]>): ReturnType<Core[M]> {
    const request: ControlRequest = { method, args };
    this.#port.postMessage(request);
    Atomics.add(this.#control, word.request, 1);
    this.commandsWritten();
    for (const begun = performance.now(); ; ) {
      const seen = Atomics.load(this.#control, word.reply);
      const answer = receiveMessageOnPort(this.#port);
      if (answer !== undefined) return this.#unwrap(answer.message as ControlReply) as ReturnType<Core[M]>;
      Atomics.wait(this.#control, word.reply, seen, controlTimeoutMs);
      if (performance.now() - begun > controlTimeoutMs) {
        throw new HeddleError('HEDDLE_FABRIC', `the engine's thread did not answer ${method}`);
      }
    }
  }

  #unwrap(reply: ControlReply): unknown {
    if (!reply.ok) throw new HeddleError(reply.code, reply.message);
    return reply.value;
  }

  commandsWritten(): void {
    wake(this.#control);
  }

  progress(): boolean {
    return false;
  }

  heard(): number {
    return Atomics.load(this.#control, word.bell);
  }

  pause(idle: number, heard: number, missing: number): boolean {
    // Spinning takes a processor away from somebody, so it is for the last moment of a wait.
    if (missing <= 1 && idle < spinsBeforePause) return false;
    if (missing === 0) {
      yieldProcessor();
      return false;
    }
    if (this.#fallAsleep(heard, missing)) Atomics.wait(this.#control, word.callerSleeps, 1, longestNapMs);
    this.#wakeUp();
    return true;
  }

  async rest(_idle: number, heard: number, missing: number): Promise<void> {
    if (this.#fallAsleep(heard, missing)) {
      const nap = (Atomics as unknown as AsyncAtomics).waitAsync(
        this.#control,
        word.callerSleeps,
        1,
        longestNapMs,
      );
      if (nap.async) await nap.value;
    }
    this.#wakeUp();
  }

  /**
   * Asks the core to wake this thread once the bell has rung `missing` times more; false where it has done so by now. The core
   * writes the bell before it looks who sleeps. This thread says that it sleeps before it looks at the bell. So one of the two sees the other.
   */
  #fallAsleep(heard: number, missing: number): boolean {
    const wakeAt = (heard + Math.min(missing, mostMissing)) | 0;
    Atomics.store(this.#control, word.wakeAt, wakeAt);
    Atomics.store(this.#control, word.callerSleeps, 1);
    return ((Atomics.load(this.#control, word.bell) - wakeAt) | 0) < 0;
  }

  #wakeUp(): void {
    Atomics.store(this.#control, word.callerSleeps, 0);
    // A blocking wait may have begun while an asynchronous one slept, and has overwritten `wakeAt`: so that one is woken, and looks again.
    Atomics.notify(this.#control, word.callerSleeps);
  }

  async close(): Promise<void> {
    this.#stopped = true;
    const gone = new Promise((resolve) => this.#worker.once('exit', resolve));
    stop(this.#control);
    await gone;
    this.#port.close();
  }
}

function wake(control: Int32Array): void {
  if (Atomics.load(control, word.coreSleeps) !== 0) {
    Atomics.store(control, word.coreSleeps, 0);
    Atomics.notify(control, word.coreSleeps);
  }
}

function stop(control: Int32Array): void {
  Atomics.store(control, word.stop, 1);
  wake(control);
}

const controlTimeoutMs = 60_000;
const spinsBeforePause = 500;
/** The longest sleep between two looks at the clock, and so the most by which a timeout is noticed too late. */
const longestNapMs = 20;
/** Half of what the bell can tell apart. */
const mostMissing = 2 ** 30;

/** Atomics.waitAsync is in every Node.js that Heddle runs on, but not yet in the library types of ES2023. */
interface AsyncAtomics {
  waitAsync(
    array: Int32Array,
    index: number,
    value: number,
    timeoutMs: number,
  ): { async: true; value: Promise<string> } | { async: false; value: string };
}
