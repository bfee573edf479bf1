/** Starts proxies, and tells the circle when one has failed. */
import { MessageChannel } from 'node:worker_threads';
import {
  ArgumentError,
  HeddleError,
  messageOf,
  RankLostError,
  requireInteger,
  requireObject,
  requireText,
} from '../../../base/errors.js';
import { getOrMake } from '../../../base/maps.js';
import { endOrderly, startThread } from '../../../base/native/index.js';
import type { MappedMemory, WireMemory } from '../../../gpu/index.js';
import type { SimMachine } from '../../../gpu/sim/index.js';
import type { ProviderName } from '../../fabric/index.js';
import type { Circle } from '../circle.js';
import { LONGEST_TIMEOUT_MS } from '../exchange.js';
import { requireReach } from '../fabric.js';
import { type FromProxy, fromMail, newMail, postman, serveCircle, stoppedWord } from './mail.js';
import { type FabricOptions, openAhead, overFabric, overMachine } from './network.js';
import { deliver, type ProxyMemory, type ProxyProgramName, prepareProxy, proxyMaker } from './program.js';
import type { ProxyThreadData } from './thread.js';

/** The program of a proxy, and what it runs on. */
export interface ProxyOptions extends Partial<Pick<ProxyProgramName, 'data' | 'reach'>> {
  readonly module: URL;
  /** The export, a `ProxyMaker`. */
  readonly name: string;
  /** Every rank's is as long. Networks reach all of what is mapped, and of a wire what lies behind its front. */
  readonly memory: MappedMemory | WireMemory;
  /** Within how many ms each write ends, well or with the loss of its peer, unless the world's `fabric` option says. */
  readonly timeoutMs?: number;
}

/** A proxy that runs. When it fails, its rank is lost to all others, with its reason. */
export interface RunningProxy {
  /** Why it ended by itself. */
  readonly error: Error | null;
  /** Ends it, and everything that it has under way. Memory may be freed then. Idempotent. */
  stop(): Promise<void>;
}

/** Requires options with which a proxy of a circle of so many ranks can start. */
export function requireProxyOptions(options: ProxyOptions, ranks: number): void {
  requireObject('options', options);
  const { module, name, reach, memory, timeoutMs } = options;
  if (!(module instanceof URL)) throw new ArgumentError('module', module, 'a URL: that of a module');
  requireText('name', name, 'the export of the module');
  if (reach !== undefined) requireReach(reach, ranks);
  requireObject('memory', memory, 'what device.allocateWire or allocateMapped gives');
  requireObject('memory.host', memory.host, 'what device.allocateWire or allocateMapped gives');
  if (timeoutMs !== undefined) requireInteger('timeoutMs', timeoutMs, 1, LONGEST_TIMEOUT_MS);
}

/** All of mapped memory is a wire in the host's. */
const asWire = (memory: MappedMemory | WireMemory): ProxyMemory & Pick<WireMemory, 'bytes'> =>
  'nics' in memory
    ? memory
    : {
        ...{ address: memory.address, bytes: memory.bytes, host: memory.host },
        ...{ front: 0, side: 'host', nics: { kind: 'host', raw: memory.raw } },
      };

/** A proxy that has all that it needs but the others. */
interface ReadyProxy {
  /** Its end of the network is open, where it was said which. */
  readonly opened: Promise<unknown>;
  /** Every rank of the circle calls it. `ranks`: as in Numbering. */
  begin(circle: Circle, ranks?: readonly number[]): Promise<Running>;
  /** Where it never begins. */
  discard(): Promise<void>;
}

/** How the proxies of a world run. `provider`: over what network they probably will. */
export type ProxyStarter = (options: ProxyOptions, provider: ProviderName | null) => ReadyProxy;

/** Each in a thread, over libfabric. */
export const inThread =
  (fabric: FabricOptions): ProxyStarter =>
  (options, provider) => {
    const { port1: port, port2 } = new MessageChannel();
    const { address, bytes, front, side, nics } = asWire(options.memory);
    const given: ProxyThreadData = {
      port: port2,
      mail: newMail(),
      program: nameOf(options),
      memory: { address, bytes, front, side, gpu: nics.kind === 'gpu' ? nics : null },
      fabric: timed(fabric, options),
      provider,
    };
    const thread = startThread(new URL('./thread.js', import.meta.url), given, [port2]);
    // A program that comes to its end does not wait for its proxy: it stops it.
    thread.unref();
    const ended = new Promise<Error | number>((resolve) => {
      thread.once('error', resolve);
      thread.once('exit', resolve);
    });
    const post = postman(port, given.mail);
    const steps = [() => post({ kind: 'stop' }), () => post({ kind: 'close' })];
    thread.once('exit', endOrderly({ steps, done: stoppedWord(given.mail) }));
    const opened = new Promise((resolve) => port.once('message', resolve));
    port.unref();
    const stop = async () => {
      thread.ref();
      post({ kind: 'stop' });
      await ended;
    };
    const begin = async (circle: Circle, ranks?: readonly number[]) => {
      thread.ref();
      const mail = serveCircle(circle, port, given.mail);
      const siblings = siblingsOf(circle);
      const stopped = siblings.begin();
      const running = runningIn(circle, ranks, stop);
      const ready = new Promise<void>((resolve, reject) => {
        mail.onTold = (message: FromProxy) => {
          if (message.kind === 'ready') {
            running.provider = message.provider;
            resolve();
          } else if (message.kind === 'stopped') {
            stopped();
            void siblings.allStopped().then(() => post({ kind: 'close' }));
          } else if (message.kind === 'failed') {
            stopped();
            reject(running.failed(fromMail(message.error)));
          }
        };
        void ended.then((how) => {
          stopped();
          mail.close();
          const why = `the thread of rank ${circle.rank}'s proxy ended with ${how}`;
          reject(running.failed(typeof how === 'number' ? new HeddleError('HEDDLE_PROXY', why) : how));
        });
      });
      post({ kind: 'begin', place: { rank: circle.rank, ranks: circle.ranks }, ranks });
      await ready;
      thread.unref();
      return running;
    };
    return { opened: Promise.race([opened, ended]), begin, discard: stop };
  };

/**
 * Beside a simulated GPU, whose machine gives it turns: over the machine's own network where that simulates all ranks, else
 * over libfabric. `gpu`: the rank's, in the machine.
 */
export const inMachine =
  (machine: SimMachine, gpu: number, fabric: FabricOptions | null): ProxyStarter =>
  (options, provider) => {
    const memory = asWire(options.memory);
    const network = fabric && timed(fabric, options);
    let over = false;
    // What goes wrong here goes wrong again when it begins.
    const opened =
      network && provider ? openAhead(() => over, network, provider, memory.nics) : Promise.resolve(null);
    const begin = async (circle: Circle, ranks?: readonly number[]) => {
      const { data, reach } = options;
      const make = await machine.standStill(proxyMaker(options));
      over = true;
      const connect = network === null ? overMachine(machine, gpu) : overFabric(network, await opened);
      const prepared = await prepareProxy(circle, connect, { make, data, reach, ranks }, memory);
      let moved = true;
      const running = runningIn(circle, ranks, async () => {
        // Turns are the machine's to give, until it has given one in which nothing moved.
        moved = true;
        const turns = { step: () => moved, allCame: () => prepared.allCame() };
        if (fabric !== null && running.error === null && !circle.signal.aborted)
          await deliver(turns, () => new Promise(setImmediate));
        end();
        await prepared.close();
      });
      running.provider = prepared.provider;
      const end = machine.startHost(gpu, {
        name: options.name,
        hearsOutside: fabric !== null,
        step: () => {
          moved = prepared.step();
          return moved;
        },
        onError: (error) => running.failed(error),
      });
      return running;
    };
    const discard = async () => {
      over = true;
      await (await opened)?.engine.close();
    };
    return { opened, begin, discard };
  };

/** A proxy that begins anew, in another circle, whenever its world leaves ranks out; until it is stopped for good. */
export class LastingProxy implements RunningProxy {
  readonly #start: (provider: ProviderName | null) => ReadyProxy;
  #next: ReadyProxy | null = null;
  #running: Running | null = null;
  #over = false;
  readonly #onStop: () => void;
  /** Whether it can begin anew without a wait for anything but the others. */
  prepared = false;

  constructor(starter: ProxyStarter, options: ProxyOptions, onStop: () => void) {
    this.#start = (provider) => starter(options, provider);
    this.#onStop = onStop;
  }

  get error(): Error | null {
    return this.#running?.error ?? null;
  }

  /** Opens, beside what runs, all that it needs to begin anew. */
  async prepare(): Promise<void> {
    if (this.#over) return;
    this.#next ??= this.#start(this.#running?.provider ?? null);
    const next = this.#next;
    await next.opened;
    this.prepared = this.#next === next;
  }

  /** Begins in a circle; every rank of it calls this. */
  async begin(circle: Circle, ranks?: readonly number[]): Promise<void> {
    if (this.#over) return;
    const next = this.#next ?? this.#start(null);
    this.#next = null;
    this.prepared = false;
    this.#running = await next.begin(circle, ranks);
    // It may have been stopped meanwhile.
    if (this.#over) await this.pause();
  }

  /** Ends what is under way. It may begin again. */
  async pause(): Promise<void> {
    await this.#running?.stop();
  }

  async stop(): Promise<void> {
    this.#over = true;
    this.#onStop();
    await Promise.all([this.pause(), this.#next?.discard()]);
    this.#next = null;
  }
}

type Running = ReturnType<typeof runningIn>;

/** A proxy that runs for a rank of the circle, until `end` ends it. `ranks`: as in Numbering. */
function runningIn(circle: Circle, ranks: readonly number[] | undefined, end: () => Promise<void>) {
  let stopping: Promise<void> | null = null;
  const running = {
    error: null as Error | null,
    /** The network that it took. */
    provider: null as ProviderName | null,
    /** It has ended by itself: to all ranks, this one is lost, or those because of which it fell. Returns why. */
    failed(thrown: unknown): Error {
      if (running.error !== null) return running.error;
      const error = thrown instanceof Error ? thrown : new Error(messageOf(thrown));
      if (stopping !== null) return error;
      running.error = error;
      if (circle.signal.aborted) return error;
      try {
        if (error instanceof RankLostError)
          circle.accuse(error.ranks, messageOf(error.cause ?? error), ranks?.indexOf(circle.rank));
        else circle.abandon(`its proxy failed: ${error.message}`);
      } catch {
        // The rank has left its circle: there is nobody to tell.
      }
      return error;
    },
    stop(): Promise<void> {
      stopping ??= end();
      return stopping;
    },
  };
  return running;
}

const timed = (fabric: FabricOptions, { timeoutMs }: ProxyOptions): FabricOptions => ({
  ...(timeoutMs !== undefined && { timeoutMs: Math.max(timeoutMs, shortestTimeoutMs) }),
  ...fabric,
});

/** The shortest time limit that an engine takes. */
const shortestTimeoutMs = 10;

const nameOf = ({ module, name, data, reach }: ProxyOptions): ProxyProgramName => ({
  module: module.href,
  ...{ name, data, reach },
});

/** How long one that has stopped waits for others that do not: they may be about to learn that a rank was lost. */
const longestWaitMs = 1000;

/**
 * Proxies of one process that write to each other. Over shm, libfabric's endpoints of a process share the mapping of a peer that is
 * in it too: one that is closed while another still looks for progress takes the memory from under that one. So they all
 * stop before the first closes.
 */
function newSiblings() {
  let running = 0;
  let onStopped = (): void => {};
  const stopped = new Promise<void>((resolve) => {
    onStopped = resolve;
  });
  return {
    /** One more runs. Returns what to call when it does not, any number of times. */
    begin(): () => void {
      let runs = true;
      running++;
      return () => {
        if (runs && --running === 0) onStopped();
        runs = false;
      };
    },
    /** Until none runs any more, or time is over. */
    async allStopped(): Promise<void> {
      let timer: NodeJS.Timeout | undefined;
      const over = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, longestWaitMs);
      });
      await Promise.race([stopped, over]);
      clearTimeout(timer);
    },
  };
}
type Siblings = ReturnType<typeof newSiblings>;

const started = new WeakMap<Circle, number>();
const families = new WeakMap<object, Siblings[]>();

/** Gives the siblings of the proxy that a rank starts now: all ranks of a circle start as many, in the same order. */
export function siblingsOf(circle: Circle): Siblings {
  const n = started.get(circle) ?? 0;
  started.set(circle, n + 1);
  const all = getOrMake(families, circle.place, () => []);
  all[n] ??= newSiblings();
  return all[n];
}
