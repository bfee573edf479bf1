import { type MessagePort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { HeddleError, messageOf } from '../../../base/errors.js';
import { stepDone, yieldProcessor } from '../../../base/native/index.js';
import { libfabric } from '../libfabric/bindings.js';
import { type Core, type CoreOptions, createCore } from './core.js';
import { closing, controlWord, stoppedWord, stopping } from './shared.js';

/**
 * The dedicated thread of an engine. It never returns to an event loop: one round after another, with the
 * control channel read in between. When nothing moves it spins, then lets other threads run, then naps, so that
 * a busy engine answers within a microsecond and an idle one costs next to nothing.
 */
export interface WorkerData {
  readonly options: CoreOptions;
  readonly port: MessagePort;
}

/** A call to the core through the control channel, and its answer. */
export interface ControlRequest {
  readonly method: string;
  readonly args: readonly unknown[];
}
export type ControlReply =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly code: string; readonly message: string };

/**
 * Empty rounds before the thread offers its processor to others, and how often it does before it naps: about a
 * millisecond where nobody else wants the processor. A nap in the middle of a transfer costs more than it saves:
 * with 50 instead of 1000, 1 MiB writes over shm moved 8.4 GB/s instead of 12.2.
 */
const spins = 200;
const yields = 1000;
/** A nap ends at once when the caller has a command; only what arrives from outside waits for its end. */
const shortestNapMs = 0.05;
const longestNapMs = 1;

const { options, port } = workerData as WorkerData;
const control = new Int32Array(options.shared.control);

function reply(answer: ControlReply): void {
  port.postMessage(answer);
  Atomics.add(control, controlWord.reply, 1);
  Atomics.notify(control, controlWord.reply);
}

function failed(error: unknown): ControlReply {
  // Errors lose their class on the way to another thread; their code and message are what matters.
  const code = error instanceof HeddleError ? error.code : 'HEDDLE_FABRIC';
  return { ok: false, code, message: messageOf(error) };
}

function serve(core: Core): void {
  for (;;) {
    const message = receiveMessageOnPort(port);
    if (message === undefined) return;
    const { method, args } = message.message as ControlRequest;
    try {
      const call = core[method as 'register'] as (...args: unknown[]) => unknown;
      reply({ ok: true, value: call.apply(core, [...args]) });
    } catch (error) {
      reply(failed(error));
    }
  }
}

function run(core: Core): void {
  let idle = 0;
  let napMs = shortestNapMs;
  let served = 0;
  while (Atomics.load(control, controlWord.stop) === 0) {
    const requested = Atomics.load(control, controlWord.request);
    if (requested !== served) {
      served = requested;
      serve(core);
    }
    if (core.progress()) {
      idle = 0;
      napMs = shortestNapMs;
    } else if (++idle > spins) {
      if (idle < spins + yields) yieldProcessor();
      else {
        Atomics.store(control, controlWord.coreSleeps, 1);
        if (core.nothingToTake() && Atomics.load(control, controlWord.request) === served) {
          Atomics.wait(control, controlWord.coreSleeps, 1, napMs);
        }
        Atomics.store(control, controlWord.coreSleeps, 0);
        napMs = Math.min(napMs * 2, longestNapMs);
        core.tick();
      }
    }
  }
  stepDone(stoppedWord(options.shared), stopping);
  while (Atomics.load(control, controlWord.stop) !== closing)
    Atomics.wait(control, controlWord.stop, stopping);
  core.close();
}

try {
  libfabric(true);
  const core = createCore(options);
  reply({ ok: true, value: core.ends });
  run(core);
} catch (error) {
  reply(failed(error));
}
stepDone(stoppedWord(options.shared), closing);
port.close();
