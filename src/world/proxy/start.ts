/** Starts proxies, and tells the group when one has failed. */
import { MessageChannel } from 'node:worker_threads';
import { HeddleError } from '../../errors/index.js';
import { startThread } from '../../native/index.js';
import type { Group } from '../group.js';
import { messageOf } from '../member.js';
import { type FromProxy, serveGroup } from './mail.js';
import { type ProgramName, type ProxyOptions, prepareProxy } from './program.js';
import type { ProxyThreadData } from './thread.js';

/** A proxy that runs. When it fails, its rank is lost to all others, with its reason. */
export interface RunningProxy {
  /** Why it ended by itself. */
  readonly error: Error | null;
  /** Ends it, and everything that it has under way. Memory may be freed then. Idempotent. */
  stop(): Promise<void>;
}

/** What a simulated machine offers to run a proxy: `step` gets turns until what this returns is called. */
export type TurnGiver = (step: () => boolean, onError: (error: unknown) => void) => () => void;

/** Starts this rank's proxy; every rank calls it. */
export function startProxy(
  group: Group,
  giveTurns: TurnGiver | null,
  options: ProxyOptions,
): Promise<RunningProxy> {
  return giveTurns === null ? startInThread(group, options) : startInMachine(group, giveTurns, options);
}

async function startInMachine(
  group: Group,
  giveTurns: TurnGiver,
  options: ProxyOptions,
): Promise<RunningProxy> {
  const prepared = await prepareProxy(group, nameOf(options), options.memories);
  const running = new Running(group, async () => {
    end();
    await prepared.close();
  });
  const end = giveTurns(
    () => prepared.step(),
    (error) => running.failed(error),
  );
  return running;
}

async function startInThread(group: Group, options: ProxyOptions): Promise<RunningProxy> {
  const { port1: port, port2 } = new MessageChannel();
  const given: ProxyThreadData = {
    port: port2,
    mail: new SharedArrayBuffer(4),
    place: { rank: group.rank, ranks: group.ranks },
    program: nameOf(options),
    memories: options.memories.map(({ address, bytes }) => ({ address, bytes })),
  };
  const thread = startThread(new URL('./thread.js', import.meta.url), given, [port2]);
  const ended = new Promise<Error>((resolve) => {
    thread.once('error', resolve);
    thread.once('exit', (code) =>
      resolve(new HeddleError('HEDDLE_PROXY', `the thread of rank ${group.rank}'s proxy ended with ${code}`)),
    );
  });
  const mail = serveGroup(group, port, given.mail);
  const running = new Running(group, async () => {
    mail.post({ kind: 'stop' });
    await ended;
  });
  const ready = new Promise<void>((resolve, reject) => {
    mail.onTold = (message: FromProxy) => {
      if (message.kind === 'ready') resolve();
      else if (message.kind === 'failed')
        reject(running.failed(new HeddleError(message.code, message.message)));
    };
    void ended.then((error) => {
      mail.close();
      reject(running.failed(error));
    });
  });
  await ready;
  return running;
}

class Running implements RunningProxy {
  error: Error | null = null;
  #stopping: Promise<void> | null = null;

  constructor(
    private readonly group: Group,
    private readonly end: () => Promise<void>,
  ) {}

  /** It has ended by itself: to the other ranks, this one is lost, unless it fell because of another. Returns why. */
  failed(thrown: unknown): Error {
    if (this.error !== null) return this.error;
    const error = thrown instanceof Error ? thrown : new Error(messageOf(thrown));
    if (this.#stopping !== null) return error;
    this.error = error;
    if (isLossOfAnother(error) || this.group.signal.aborted) return error;
    try {
      this.group.abandon(`its proxy failed: ${error.message}`);
    } catch {
      // The rank has left its group: there is nobody to tell.
    }
    return error;
  }

  stop(): Promise<void> {
    this.#stopping ??= this.end();
    return this.#stopping;
  }
}

/** Told by its code, since errors lose their class on the way from a thread. */
const isLossOfAnother = (error: Error): boolean =>
  error instanceof HeddleError && error.code === 'HEDDLE_RANK_LOST';

const nameOf = ({ module, name, data, engine }: ProxyOptions): ProgramName => ({
  module: module.href,
  ...{ name, data, engineOptions: engine },
});
