import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { extname, resolve } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { pathToFileURL } from 'node:url';
import {
  ArgumentError,
  integerFrom,
  messageOf,
  requireArray,
  requireFlag,
  requireFunction,
  requireInteger,
  requireMembers,
  requireText,
  type Table,
  UnavailableError,
} from '../../base/errors.js';
import { evenNodes, maxSimulatedRanks } from '../../gpu/index.js';
import { formatAddress } from './address.js';
import { parseEtcdAddress } from './etcd/address.js';
import { type EtcdHost, openEtcdHost } from './etcd/host.js';
import { LONGEST_TIMEOUT_MS, MAX_RANKS } from './exchange.js';
import { forwardLines, type Outlet, outletTo } from './output.js';
import { startReaper } from './reaper.js';
import { Rendezvous } from './rendezvous.js';
import { EXIT_LACKING, hearLack, listening } from './tell-launcher.js';

/** The program to start, and how. */
export interface LaunchOptions {
  readonly ranks: number;
  /** Equal nodes of consecutive ranks; else ranks find out themselves. */
  readonly nodes?: number;
  /** `sim`: one process a node (1 by default), which simulates the GPUs of the node's ranks. */
  readonly device?: 'sim';
  /** A JavaScript or TypeScript file. */
  readonly program: string;
  readonly args?: readonly string[];
  /** Ends everything after so many ms. Default: never. */
  readonly timeoutMs?: number;
  /** How long the other ranks may take to end after one failed or a signal came, in ms. Default 5,000. */
  readonly graceMs?: number;
  /** How many places the world has, default `ranks`: more may come. */
  readonly places?: number;
  /** When a rank is lost the others go on: for programs whose layers leave lost ranks out. */
  readonly keepGoing?: boolean;
  /** How often all ranks are started anew, in a new world, where one has failed. Default 0. */
  readonly restarts?: number;
  /** Instead the process that failed is started anew, and takes its places in the same world (`World.rejoin`). Implies `keepGoing`. */
  readonly rejoin?: boolean;
  /** Whether each line of output begins with its process: `[rank 3] `, `[ranks 2-3] `. Default: it does. */
  readonly prefix?: boolean;
  readonly stdout?: Writable;
  readonly stderr?: Writable;
  /** Hears of what the launcher does by itself, a sentence at a time. */
  readonly onNote?: (note: string) => void;
}

/** How the process of one rank ended, or of several whose GPUs it simulated. */
export interface RankResult {
  /** The first, where there are several. */
  readonly rank: number;
  readonly ranks: number;
  readonly pid: number;
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly seconds: number;
}

export interface LaunchResult {
  /**
   * 0, or the first failing rank's (128 + number for a signal; 2 where its machine lacked something), or 124 when the time was
   * over. With `keepGoing` 0 where one rank ended well.
   */
  readonly exitCode: number;
  readonly seconds: number;
  readonly timedOut: boolean;
  readonly firstFailure: RankResult | null;
  readonly results: readonly RankResult[];
}

/** As timeout(1) says it. */
const EXIT_TIMED_OUT = 124;
/** How much earlier than a process's end its closed connection may be noticed. */
const EXIT_NOTICE_MS = 250;
/** How long output may still come from what a rank has left behind, outside its process group. */
const DRAIN_MS = 500;

interface Exit {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A process of one rank or of several. It leads a process group of its own, so that what it starts ends with it. */
interface RankProcess {
  readonly part: Part;
  /** Its name where it waits to be admitted, because it was started anew; null for one with which the world began. */
  readonly name: string | null;
  readonly pid: number;
  readonly child: ChildProcess;
  readonly exited: Promise<Exit>;
  readonly output: Promise<void>;
  readonly lack: ReturnType<typeof hearLack>;
  readonly since: number;
  running: boolean;
}

/** Ranks that were started together on this machine. */
export interface Launch {
  /** Resolves when every rank has ended and nothing of it is left. */
  readonly finished: Promise<LaunchResult>;
  /** The process ids, by rank. */
  readonly pids: readonly number[];
  signal(name: NodeJS.Signals): void;
}

/** Starts ranks, with the rendezvous that they join. */
export const Launch = { start };

const launchOptions: Table<LaunchOptions> = {
  ...{ ranks: true, places: true, nodes: true, device: true, program: true },
  args: (argument, value) => requireArray(argument, value, 'an array of texts'),
  timeoutMs: integerFrom(1, LONGEST_TIMEOUT_MS),
  graceMs: integerFrom(0, LONGEST_TIMEOUT_MS),
  restarts: integerFrom(0, Number.MAX_SAFE_INTEGER),
  ...{ keepGoing: requireFlag, rejoin: requireFlag, prefix: requireFlag },
  ...{ stdout: true, stderr: true, onNote: requireFunction },
};

async function start(options: LaunchOptions): Promise<Launch> {
  requireMembers('options', options, launchOptions);
  const { graceMs = 5_000, args = [] } = options;
  requireInteger('ranks', options.ranks, 1, MAX_RANKS);
  if (options.places !== undefined) requireInteger('places', options.places, options.ranks, MAX_RANKS);
  const parts = partsOf(options);
  for (const [i, argument] of args.entries()) requireText(`args[${i}]`, argument);
  const { restarts = 0, rejoin = false, prefix = true } = options;
  if (rejoin && restarts === 0)
    throw new ArgumentError('restarts', restarts, '1 or more, because rejoin is true');
  if (rejoin && options.keepGoing === false)
    throw new ArgumentError('keepGoing', false, 'true or left out, because rejoin is true');
  const program = requireProgram(options.program);
  if (process.platform === 'win32') {
    throw new UnavailableError(
      'ranks cannot be started here: Windows has no process groups',
      'Use WSL, or start each rank yourself with HEDDLE_RANK, HEDDLE_WORLD and HEDDLE_ADDRESS',
    );
  }
  const command = [...loaderArguments(program), program, ...args];
  const { places = options.ranks, keepGoing = rejoin } = options;
  const how = { ...options, graceMs, places, keepGoing, restarts: rejoin ? restarts : 0, prefix };
  const begin = (timeoutMs = options.timeoutMs) =>
    beginWorld(parts, command, { ...how, ...(timeoutMs !== undefined && { timeoutMs }) });
  const first = await begin();
  return rejoin || restarts === 0 ? first : again(first, begin, how, restarts);
}

/** Begins the world anew where it has failed, so many times. */
function again(
  first: Launch,
  begin: (timeoutMs?: number) => Promise<Launch>,
  { timeoutMs, onNote = () => {} }: LaunchOptions,
  restarts: number,
): Launch {
  const since = performance.now();
  let launch = first;
  let stopped: NodeJS.Signals | null = null;
  async function finish(): Promise<LaunchResult> {
    const results: RankResult[] = [];
    for (let starts = 1; ; starts++) {
      const result = await launch.finished;
      results.push(...result.results);
      const { exitCode, timedOut } = result;
      const useless = exitCode === 0 || exitCode === EXIT_LACKING || timedOut || starts > restarts;
      const leftMs = timeoutMs === undefined ? undefined : Math.ceil(timeoutMs - (performance.now() - since));
      if (useless || stopped !== null || (leftMs ?? 1) < 1)
        return { ...result, seconds: secondsSince(since), results };
      onNote(`the world begins anew, start ${starts + 1}`);
      launch = await begin(leftMs);
      if (stopped !== null) launch.signal(stopped);
    }
  }
  return {
    finished: finish(),
    get pids() {
      return launch.pids;
    },
    signal(name) {
      stopped = name;
      launch.signal(name);
    },
  };
}

/** Options with their defaults. `restarts`: of single processes, in their places. */
type Begun = LaunchOptions & Required<Pick<LaunchOptions, 'graceMs' | 'places' | 'keepGoing' | 'restarts'>>;

async function beginWorld(
  parts: readonly Part[],
  command: readonly string[],
  options: Begun,
): Promise<Launch> {
  const { graceMs, places, keepGoing, prefix } = options;
  const world = randomBytes(8).toString('hex');
  const secret = randomBytes(32).toString('hex');
  const { HEDDLE_RENDEZVOUS } = process.env;
  const of = { ranks: options.ranks, world, secret };
  const rendezvous = HEDDLE_RENDEZVOUS
    ? await openEtcdHost({ ...of, etcd: parseEtcdAddress('HEDDLE_RENDEZVOUS', HEDDLE_RENDEZVOUS) })
    : await Rendezvous.listen(of);
  // A world in etcd needs no launcher, so ranks that keep going may outlive it.
  const outlive = !(rendezvous instanceof Rendezvous) && keepGoing;
  const reaper = outlive ? null : startReaper(graceMs);
  const ranks: RankProcess[] = [];
  const stdout = outletTo(options.stdout ?? process.stdout);
  const stderr = outletTo(options.stderr ?? process.stderr);
  const startPart: StartPart = async (part, name) => {
    const { rank } = part;
    const environment = {
      ...process.env,
      ...part.environment,
      ...listening(),
      HEDDLE_RANK: String(rank),
      HEDDLE_WORLD: String(options.ranks),
      HEDDLE_PLACES: String(places),
      HEDDLE_LOCAL_RANK: String(rank),
      HEDDLE_REJOIN: name ?? undefined,
      ...(rendezvous instanceof Rendezvous && {
        HEDDLE_ADDRESS: formatAddress(rendezvous.address),
        HEDDLE_HOSTED: '1',
      }),
      HEDDLE_SECRET: secret,
      HEDDLE_WORLD_ID: world,
    };
    const child = await startRank(
      part,
      command,
      environment,
      stdout,
      stderr,
      prefix ? `[${part.label}] ` : '',
    );
    reaper?.started(child.pid);
    return { ...child, name };
  };
  try {
    for (const part of parts) ranks.push(await startPart(part, null));
    return follow(ranks, startPart, rendezvous, reaper, options);
  } catch (error) {
    for (const { pid } of ranks) signalGroup(pid, 'SIGKILL');
    void reaper?.done();
    await rendezvous.close();
    throw error;
  }
}

/** Looks after ranks that were started, until all have ended. `ranks`: the last process of each part. */
function follow(
  ranks: RankProcess[],
  startPart: StartPart,
  rendezvous: Rendezvous | EtcdHost,
  reaper: ReturnType<typeof startReaper> | null,
  { timeoutMs, graceMs, restarts, keepGoing, onNote = () => {} }: Begun,
): Launch {
  const timers: ReturnType<typeof setTimeout>[] = [];
  let firstFailure: RankResult | null = null;
  let timedOut = false;
  let over = false;
  let signals = 0;
  if (timeoutMs !== undefined) timers.push(setTimeout(() => expire(timeoutMs), timeoutMs));
  rendezvous.onLost = (lost, why) => {
    const judge = () => {
      const still = ranks.filter(
        (process) => process.running && originsOf(process).some((rank) => lost.includes(rank)),
      );
      if (still.length > 0) areLost(still, `rank ${lost.join(', ')} is lost: ${why}`);
    };
    timers.push(setTimeout(judge, EXIT_NOTICE_MS));
  };

  /** Passes a signal on to every rank. They have the grace time to end; a second signal ends them at once. */
  function signal(name: NodeJS.Signals): void {
    signals++;
    if (signals > 1) {
      kill('SIGKILL');
      return;
    }
    onNote(`${name}: passed on to the ranks, which have ${graceMs / 1000} s to end`);
    end(name);
  }

  async function finish(): Promise<LaunchResult> {
    const since = ranks[0]!.since;
    const results = (await Promise.all(ranks.map((_, part) => followAll(part)))).flat();
    for (const timer of timers) clearTimeout(timer);
    void reaper?.done();
    await rendezvous.close();
    return {
      exitCode: exitCodeOf(results),
      seconds: secondsSince(since),
      ...{ timedOut, firstFailure, results },
    };
  }

  async function followAll(part: number): Promise<RankResult[]> {
    const results: RankResult[] = [];
    for (let again = true; again; ) {
      const result = await followOne(ranks[part]!);
      results.push(result);
      again = await startAnew(part, result, results.length);
    }
    return results;
  }

  /** Starts the process of a part anew. False after a clean exit, for want of something, at the end, and where nobody is left to admit it. */
  async function startAnew(index: number, { exitCode }: RankResult, starts: number): Promise<boolean> {
    const { part } = ranks[index]!;
    const useless = exitCode === 0 || exitCode === EXIT_LACKING || starts > restarts;
    if (useless || timedOut || signals > 0 || rendezvous.over) return false;
    try {
      ranks[index] = await startPart(part, `${part.label}, start ${starts + 1}`);
      onNote(`${part.label}: a new process is started, and waits until the others admit it`);
      return true;
    } catch (error) {
      onNote(messageOf(error));
      return false;
    }
  }

  async function followOne(process: RankProcess): Promise<RankResult> {
    const { part, pid, exited, since } = process;
    const exit = await exited;
    process.running = false;
    signalGroup(pid, 'SIGKILL'); // what the rank has started and not ended
    reaper?.ended(pid);
    const { rank, ranks, label } = part;
    const result: RankResult = { rank, ranks, pid, ...exit, seconds: secondsSince(since) };
    if (exit.exitCode !== 0) {
      const lack = await process.lack(exit.exitCode);
      failed(lack === '' ? `${label} ${describe(exit, ranks)}` : `${label}: ${lack}`, result);
    }
    // Of no effect where its connection has told already; but it may never have joined.
    for (const rank of originsOf(process)) {
      if (exit.exitCode === 0) rendezvous.leave(rank);
      else rendezvous.lose(rank, `its process ${describe(exit, 1)}`);
    }
    await drained(process);
    return result;
  }

  /** The numbers by which the rendezvous has known the ranks of a process, also where they were lost and came back. */
  function originsOf({ part, name }: RankProcess): readonly number[] {
    if (name !== null) return rendezvous.originsOf(name);
    return ranksOf(part).flatMap((rank) => [rank, ...rendezvous.originsOf(`rank ${rank}`)]);
  }

  function failed(what: string, result: RankResult): void {
    if (keepGoing) {
      onNote(`${what}; the others go on`);
    } else if (over) {
      // Later ones fall because of the first, or because they were told to.
      if (!firstFailure) onNote(what);
    } else {
      worldIsOver(what);
    }
    firstFailure ??= result;
  }

  /** Ranks that run, but that nobody waits for any more. */
  function areLost(processes: readonly RankProcess[], why: string): void {
    if (!keepGoing) {
      worldIsOver(why);
      return;
    }
    onNote(`${why}; it has ${graceMs / 1000} s to end`);
    end('SIGTERM', 0, processes);
  }

  function exitCodeOf(results: readonly RankResult[]): number {
    if (timedOut) return EXIT_TIMED_OUT;
    const good = keepGoing && results.some(({ exitCode }) => exitCode === 0);
    if (good || firstFailure === null) return 0;
    const { exitCode, signal } = firstFailure;
    return exitCode ?? 128 + (signal === null ? 0 : constants.signals[signal]);
  }

  /**
   * A world that has lost a rank cannot go on. The others have heard of it through the rendezvous and may
   * have something to say; so they are asked to end at half of the grace time only, and ended when it is over.
   */
  function worldIsOver(why: string): void {
    if (over) return;
    over = true;
    const alone = !ranks.some(({ running }) => running);
    onNote(alone ? why : `${why}; the others have ${graceMs / 1000} s to end`);
    end('SIGTERM', graceMs / 2);
  }

  function expire(timeoutMs: number): void {
    timedOut = true;
    onNote(`not finished after ${timeoutMs / 1000} s; the ranks have ${graceMs / 1000} s to end`);
    end('SIGTERM');
  }

  /** Asks them to end, now or later, and ends them when the grace time is over. */
  function end(signal: NodeJS.Signals, afterMs = 0, whom: readonly RankProcess[] = ranks): void {
    if (afterMs === 0) kill(signal, whom);
    else timers.push(setTimeout(() => kill(signal, whom), afterMs));
    timers.push(setTimeout(() => kill('SIGKILL', whom), graceMs));
  }

  function kill(signal: NodeJS.Signals, whom: readonly RankProcess[] = ranks): void {
    for (const { pid, running } of whom) {
      if (running) signalGroup(pid, signal);
    }
  }

  return {
    finished: finish(),
    get pids(): readonly number[] {
      return ranks.map(({ pid }) => pid);
    },
    signal,
  };
}

/** Requires the path of a file; returns it from the root. */
function requireProgram(path: string): string {
  const program = resolve(requireText('program', path, 'the path of a file'));
  if (!/^(\.[cm]?[jt]s)?$/.test(extname(program)))
    throw new ArgumentError('program', path, 'a JavaScript or TypeScript file');
  let why = '';
  try {
    if (statSync(program, { throwIfNoEntry: false })?.isFile()) return program;
  } catch (error) {
    // Too long, in a folder that is closed to this user …
    why = ` that can be read (${(error as NodeJS.ErrnoException).code})`;
  }
  throw new ArgumentError('program', path, `an existing file${why}`);
}

/** The part of the world that one process is. */
interface Part {
  /** The first of `ranks`. */
  readonly rank: number;
  readonly ranks: number;
  /** For messages: 'rank 3', 'ranks 2-3'. */
  readonly label: string;
  readonly environment: NodeJS.ProcessEnv;
}

/** Starts the process of a part: for the world to begin with, or by a name as one that waits to be admitted. */
type StartPart = (part: Part, name: string | null) => Promise<RankProcess>;

/** One process a rank, or a node where it simulates the GPUs of one. */
function partsOf({ ranks, places = ranks, nodes, device }: LaunchOptions): Part[] {
  if (device !== undefined && device !== 'sim') throw new ArgumentError('device', device, "'sim'");
  evenNodes(places, nodes ?? 1); // which refuses what does not divide
  const here = device !== 'sim' ? 1 : nodes === undefined ? ranks : places / nodes;
  if (ranks % here !== 0)
    throw new ArgumentError('ranks', ranks, `a multiple of ${here}, the ranks of each simulated node`);
  if (here > maxSimulatedRanks)
    throw new ArgumentError(
      'ranks',
      ranks,
      `at most ${maxSimulatedRanks} on each node where GPUs are simulated`,
    );
  return Array.from({ length: ranks / here }, (_, i) => {
    const rank = i * here;
    return {
      rank,
      ranks: here,
      label: here === 1 ? `rank ${rank}` : `ranks ${rank}-${rank + here - 1}`,
      environment: {
        ...(device && { HEDDLE_DEVICE: device, HEDDLE_RANKS_HERE: String(here) }),
        ...(nodes !== undefined && { HEDDLE_NODES: String(nodes) }),
      },
    };
  });
}

const ranksOf = ({ rank, ranks }: Part): number[] => Array.from({ length: ranks }, (_, i) => rank + i);

/** The options of Node.js before the program: nothing, or tsx where it cannot run TypeScript by itself. */
export function loaderArguments(
  program: string,
  // Run from source, programs get the source too: by tsx, from the paths of tsconfig.json. Node.js would give them the build.
  stripsTypes = !import.meta.filename.endsWith('.ts') &&
    Boolean((process.features as { typescript?: unknown }).typescript),
  places: readonly string[] = [program, import.meta.filename],
): string[] {
  if (!/\.([mc]?ts|tsx)$/.test(program)) return [];
  if (stripsTypes && !program.endsWith('.tsx')) return [];
  for (const place of places) {
    try {
      return ['--import', pathToFileURL(createRequire(place).resolve('tsx')).href];
    } catch {
      // Not installed there; perhaps at the next place.
    }
  }
  throw new UnavailableError(
    `Node.js ${process.versions.node} cannot run ${program} by itself, and tsx is not installed`,
    'Run `npm install --save-dev tsx`, or use Node.js 22.18 or newer',
  );
}

async function startRank(
  part: Part,
  command: readonly string[],
  env: NodeJS.ProcessEnv,
  stdout: Outlet,
  stderr: Outlet,
  prefix: string,
): Promise<Omit<RankProcess, 'name'>> {
  const child = spawn(process.execPath, command, {
    env,
    // A group of its own. Without a terminal's: Ctrl-C reaches the ranks once, through the launcher.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
  });
  const lack = hearLack(child.stdio[3] as Readable);
  const exited = new Promise<Exit>((resolve) => {
    child.once('exit', (exitCode, signal) => resolve({ exitCode, signal }));
  });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => {
      const what = `${part.label} cannot be started: ${error.message}`;
      reject(
        new UnavailableError(what, 'Free memory, or raise the limit of processes (ulimit -u)', {
          cause: error,
        }),
      );
    });
  });
  const output = Promise.all([
    forwardLines(child.stdout!, stdout, prefix),
    forwardLines(child.stderr!, stderr, prefix),
  ]).then(() => {});
  return { part, pid: child.pid!, child, exited, output, lack, since: performance.now(), running: true };
}

/**
 * Waits until all of an ended rank's output is forwarded. A process that the rank has put outside its group
 * may hold the pipe open for ever, so a pipe in which nothing moves is closed.
 */
async function drained({ child, output }: RankProcess): Promise<void> {
  const pipes = [child.stdout, child.stderr] as (Readable & { bytesRead: number })[];
  let before = -1;
  const timer = setInterval(() => {
    const now = pipes.reduce((sum, pipe) => sum + pipe.bytesRead, 0);
    if (now === before && pipes.every((pipe) => pipe.readableLength === 0)) {
      for (const pipe of pipes) pipe.destroy();
    }
    before = now;
  }, DRAIN_MS);
  await output;
  clearInterval(timer);
}

function signalGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch (error) {
    // All of it has ended already; macOS says EPERM while the last of it waits to be collected.
    if (!['ESRCH', 'EPERM'].includes((error as NodeJS.ErrnoException).code!)) throw error;
  }
}

/** The predicate of a sentence about so many ranks. */
function describe({ exitCode, signal }: Exit, ranks: number): string {
  if (signal === null) return `ended with exit code ${exitCode}`;
  return `${ranks === 1 ? 'was' : 'were'} ended by ${signal}`;
}

function secondsSince(start: number): number {
  return Math.round(performance.now() - start) / 1000;
}
