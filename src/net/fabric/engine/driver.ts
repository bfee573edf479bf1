import { setImmediate } from 'node:timers/promises';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { HeddleError } from '../../../base/errors.js';
import { endOrderly, startThread, yieldProcessor } from '../../../base/native/index.js';
import { type Core, type CoreOptions, createCore } from '../core/core.js';
import { closing, controlWord, stoppedWord, stopping } from '../core/shared.js';
import type { ControlReply, ControlRequest, WorkerData } from '../core/worker.js';

/** The methods of a core that set things up; they are called rarely and answer before the call returns. */
type ControlMethod = Exclude<
  keyof Core,
  'ends' | 'progress' | 'nothingToTake' | 'takeCommands' | 'tick' | 'close'
>;

/** How the caller reaches its core: in a thread of its own, or driven by the caller's calls. */
export interface Driver {
  readonly ends: Core['ends'];
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
  /** Waits as `pause` does, without blocking this thread. */
  rest(idle: number, heard: number, missing: number): Promise<void>;
  close(): Promise<void>;
}

/** The caller makes progress: nothing moves between its calls. For threads that poll anyway. */
export function callerDriver(options: CoreOptions): Driver {
  const core = createCore(options);
  const pause = (idle: number): boolean => {
    if (idle > spinsBeforePause) yieldProcessor();
    return false;
  };
  return {
    ends: core.ends,
    call: (method, ...args) =>
      (core[method] as (...given: typeof args) => ReturnType<Core[typeof method]>)(...args),
    commandsWritten: () => void core.takeCommands(),
    progress: core.progress,
    heard: () => 0,
    pause,
    // Nobody else makes progress: comes back as soon as the event loop has had its turn.
    async rest(idle) {
      pause(idle);
      await setImmediate();
    },
    close: async () => core.close(),
  };
}

/** A dedicated thread makes progress; see worker.ts. */
export async function startWorker(options: CoreOptions, onDeath: (error: Error) => void): Promise<Driver> {
  const { port1: port, port2 } = new MessageChannel();
  const data: WorkerData = { options, port: port2 };
  const worker = startThread(new URL('../core/worker.js', import.meta.url), data, [port2]);
  const control = new Int32Array(options.shared.control);
  const steps = ([stopping, closing] as const).map((what) => () => tellCore(control, what));
  worker.once('exit', endOrderly({ steps, done: stoppedWord(options.shared) }));
  const died = new Promise<never>((_, reject) => {
    worker.once('error', reject);
    worker.once('exit', (code) =>
      reject(new HeddleError('HEDDLE_FABRIC', `the engine's thread ended with exit code ${code}`)),
    );
  });
  const first = new Promise<ControlReply>((resolve) => port.once('message', resolve));
  const reply = await Promise.race([first, died]);
  // From here on answers are fetched synchronously, and only the thread keeps the process alive.
  port.removeAllListeners('message');
  port.unref();
  let stopped = !reply.ok;
  died.catch((error) => {
    if (!stopped) onDeath(error);
  });

  function unwrap(reply: ControlReply): unknown {
    if (!reply.ok) throw new HeddleError(reply.code, reply.message);
    return reply.value;
  }

  /**
   * Asks the core to wake this thread once the bell has rung `missing` times more; false where it has done so by now. The core
   * writes the bell before it looks who sleeps. This thread says that it sleeps before it looks at the bell. So one of the two sees the other.
   */
  function fallAsleep(heard: number, missing: number): boolean {
    const wakeAt = (heard + Math.min(missing, mostMissing)) | 0;
    Atomics.store(control, controlWord.wakeAt, wakeAt);
    Atomics.store(control, controlWord.callerSleeps, 1);
    return ((Atomics.load(control, controlWord.bell) - wakeAt) | 0) < 0;
  }

  function wakeUp(): void {
    Atomics.store(control, controlWord.callerSleeps, 0);
    // A blocking wait may have begun while an asynchronous one slept, and has overwritten `wakeAt`: so that one is woken, and looks again.
    Atomics.notify(control, controlWord.callerSleeps);
  }

  return {
    ends: unwrap(reply) as Core['ends'],
    call(method, ...args) {
      const request: ControlRequest = { method, args };
      port.postMessage(request);
      Atomics.add(control, controlWord.request, 1);
      wake(control);
      for (const begun = performance.now(); ; ) {
        const seen = Atomics.load(control, controlWord.reply);
        const answer = receiveMessageOnPort(port);
        if (answer !== undefined)
          return unwrap(answer.message as ControlReply) as ReturnType<Core[typeof method]>;
        Atomics.wait(control, controlWord.reply, seen, controlTimeoutMs);
        if (performance.now() - begun > controlTimeoutMs) {
          throw new HeddleError('HEDDLE_FABRIC', `the engine's thread did not answer ${method}`);
        }
      }
    },
    commandsWritten: () => wake(control),
    progress: () => false,
    heard: () => Atomics.load(control, controlWord.bell),
    pause(idle, heard, missing) {
      // Spinning takes a processor away from somebody, so it is for the last moment of a wait.
      if (missing <= 1 && idle < spinsBeforePause) return false;
      if (missing === 0) {
        yieldProcessor();
        return false;
      }
      if (fallAsleep(heard, missing)) Atomics.wait(control, controlWord.callerSleeps, 1, longestNapMs);
      wakeUp();
      return true;
    },
    async rest(_idle, heard, missing) {
      if (fallAsleep(heard, missing)) {
        const nap = Atomics.waitAsync(control, controlWord.callerSleeps, 1, longestNapMs);
        if (nap.async) await nap.value;
      }
      wakeUp();
    },
    async close() {
      stopped = true;
      const gone = new Promise((resolve) => worker.once('exit', resolve));
      tellCore(control, closing);
      await gone;
      port.close();
    },
  };
}

function wake(control: Int32Array): void {
  if (Atomics.load(control, controlWord.coreSleeps) !== 0) {
    Atomics.store(control, controlWord.coreSleeps, 0);
    Atomics.notify(control, controlWord.coreSleeps);
  }
}

function tellCore(control: Int32Array, what: typeof stopping | typeof closing): void {
  Atomics.store(control, controlWord.stop, what);
  Atomics.notify(control, controlWord.stop);
  wake(control);
}

const controlTimeoutMs = 60_000;
const spinsBeforePause = 500;
/** The longest sleep between two looks at the clock, and so the most by which a timeout is noticed too late. */
const longestNapMs = 20;
/** Half of what the bell can tell apart. */
const mostMissing = 2 ** 30;
