import { type ChildProcess, spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { sweepShm } from '../../../src/net/fabric/index.js';
import { end } from '../../processes.js';

/**
 * Several local processes that run one function each, and that exchange what they have to tell one another
 * through the process that started them, which may also end them.
 */
interface RanksOptions {
  readonly ranks: number;
  /** A module whose export `name` is a `(rank: TestRank) => Promise<result>`. */
  readonly module: URL;
  readonly name: string;
  readonly args: unknown;
  /** What to run a rank's process under, such as `ip netns exec …`. */
  readonly under?: (rank: number) => readonly string[];
  /** Gets what ranks tell with `tell`. */
  readonly onTold?: (told: { rank: number; what: unknown; ranks: Ranks }) => void;
  readonly timeoutMs: number;
}

/** What the starting process can do to the ranks. */
export interface Ranks {
  pid(rank: number): number;
  /** Ends a rank's process with a signal; the others go on and no longer wait for it in `exchange`. */
  kill(rank: number, signal: NodeJS.Signals): void;
  /** Sends something to a rank, which gets it from `told`. */
  tell(rank: number, what: unknown): void;
}

/** What one of the processes sees. In what it exchanges, ranks that are gone are undefined. */
export interface TestRank {
  readonly rank: number;
  readonly ranks: number;
  readonly args: unknown;
  /** Gives a value to everybody and gets everybody's, by rank. */
  exchange<T>(value: T): Promise<T[]>;
  /** Tells the starting process something. */
  tell(what: unknown): void;
  /** Waits for the starting process to tell something. */
  told(): Promise<unknown>;
}

/** What goes between the starting process and a rank. */
export type ToRank =
  | {
      readonly kind: 'start';
      readonly rank: number;
      readonly options: Pick<RanksOptions, 'ranks' | 'name' | 'args'> & { readonly module: string };
    }
  | { readonly kind: 'exchanged'; readonly values: readonly unknown[] }
  | { readonly kind: 'told'; readonly what: unknown };
export type FromRank =
  | { readonly kind: 'ready' }
  | { readonly kind: 'exchange'; readonly value: unknown }
  | { readonly kind: 'tell'; readonly what: unknown }
  | { readonly kind: 'result'; readonly value: unknown }
  | { readonly kind: 'failed'; readonly message: string };

/** Runs the processes; returns the results by rank (undefined for ranks that were killed on purpose). */
export async function runRanks(options: RanksOptions): Promise<unknown[]> {
  const children: ChildProcess[] = [];
  const results: unknown[] = new Array(options.ranks).fill(undefined);
  const gone = new Set<number>();
  let offered = new Map<number, unknown>();
  let output = '';

  const send = (rank: number, message: ToRank) => {
    if (!gone.has(rank) && children[rank]!.connected) children[rank]!.send(message, () => {});
  };
  const exchangeIfComplete = () => {
    if (offered.size === 0 || offered.size + gone.size < options.ranks) return;
    const values = Array.from({ length: options.ranks }, (_, rank) => offered.get(rank));
    const to = [...offered.keys()];
    offered = new Map();
    for (const rank of to) send(rank, { kind: 'exchanged', values });
  };
  const ranks: Ranks = {
    pid: (rank) => children[rank]!.pid!,
    kill(rank, signal) {
      gone.add(rank);
      offered.delete(rank);
      children[rank]!.kill(signal);
      exchangeIfComplete();
    },
    tell: (rank, what) => send(rank, { kind: 'told', what }),
  };

  let timer: NodeJS.Timeout | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      const fail = (message: string) => reject(new Error(`${message}\n${output}`));
      timer = setTimeout(
        () => fail(`${options.name}: no end after ${options.timeoutMs} ms`),
        options.timeoutMs,
      );
      let left = options.ranks;
      for (let rank = 0; rank < options.ranks; rank++) {
        const child = start(options.under?.(rank) ?? []);
        children.push(child);
        const hear = (text: Buffer) => {
          output = `${output}[rank ${rank}] ${text}`.slice(-8000);
        };
        child.stdout!.on('data', hear);
        child.stderr!.on('data', hear);
        child.on('message', (message: FromRank) => {
          switch (message.kind) {
            case 'ready': {
              const { ranks: count, name, args, module } = options;
              send(rank, { kind: 'start', rank, options: { ranks: count, name, args, module: module.href } });
              break;
            }
            case 'exchange':
              offered.set(rank, message.value);
              exchangeIfComplete();
              break;
            case 'tell':
              options.onTold?.({ rank, what: message.what, ranks });
              break;
            case 'result':
              results[rank] = message.value;
              break;
            case 'failed':
              fail(`rank ${rank} failed: ${message.message}`);
          }
        });
        child.on('error', (error) => fail(`rank ${rank} did not start: ${error.message}`));
        child.on('exit', (code, signal) => {
          if (code !== 0 && !gone.has(rank)) fail(`rank ${rank} ended with ${signal ?? `exit code ${code}`}`);
          gone.add(rank);
          exchangeIfComplete();
          if (--left === 0) resolve();
        });
      }
    });
  } finally {
    clearTimeout(timer);
    await Promise.all(children.map(end));
    // What they could not clean up themselves.
    sweepShm();
  }
  return results;
}

function start(under: readonly string[]): ChildProcess {
  const main = fileURLToPath(new URL('./rank-main.ts', import.meta.url));
  const loader = ['--import', pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href];
  const [command, ...args] = [...under, process.execPath, ...loader, main];
  return spawn(command!, args, {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    serialization: 'advanced',
    env: { ...process.env, NODE_OPTIONS: '' },
  });
}
