/**
 * The heart of the simulated machine: it runs blocks of several kernels of several ranks, one thread at a time, in
 * the order that a schedule picks, between turns of the host programs that launched them.
 *
 * Host programs are ordinary async functions. The engine runs in turns of the event loop: a turn ends when a host
 * was told something (so that it can react before anything else happens, which keeps runs repeatable) or after a
 * number of steps (so that the process stays responsive).
 */
import {
  HeddleError,
  requireFunction,
  requireInteger,
  requireOneOf,
  requireText,
} from '../../base/errors.js';
import { getOrMake } from '../../base/maps.js';
import { maxSimulatedRanks } from '../index.js';
import { Blocks, type MachineServices } from './blocks.js';
import { type Mode, pause } from './compiled.js';
import { assumptions, type SiteId } from './detector/detector.js';
import { Detector } from './detector/race-detector.js';
import { type FindingContent, FindingLog } from './findings.js';
import { type HostProgram, HostThread } from './host-threads.js';
import { Hosts } from './hosts.js';
import { Meetings } from './meetings.js';
import { SimBuffer } from './memory.js';
import { type EngineOptions, requireSteps, scheduleOf } from './options.js';
import { Puts } from './puts.js';
import { Random } from './random.js';
import type { Agent, Schedule } from './schedule.js';
import { hostProgram, SiteRegistry } from './sites.js';
import { Spins } from './spins.js';
import type { Block, Thread } from './thread.js';
import { longestMs, Waits } from './waits.js';
import { type Watcher, watched } from './watched.js';

const stepsPerTurn = 20_000;
/** Steps of checked mode after which those look again who mostly do so only when nobody else can run. */
const wakeEvery = 1024;
/** How long a look of a thread that polls takes, where time passes for nobody else. */
const nanosecondsPerLook = 1000;
/** How many turns of the event loop a machine without runnable work waits before it believes its hosts blocked. */
const patience = 2;

/** For how many milliseconds it looks all the time for what may come from outside; then once a millisecond. */
const outsidePatienceMs = 10;

export class Engine implements MachineServices {
  readonly ranks: number;
  readonly mode: Mode;
  readonly seed: string;
  readonly sites: SiteRegistry;
  readonly schedule: Schedule;
  readonly random: Random;
  readonly log: FindingLog;
  readonly detector: Detector | null;
  readonly print: (line: string) => void;
  readonly hosts: Hosts;
  readonly killed: boolean[];
  readonly seen = new SimBuffer(-1, 'what an atomic load has read', -1, 16);
  readonly spins = new Spins();
  readonly puts = new Puts(this);
  steps = 0;
  timeLimits = 0;
  /** Why the first launch failed: others may wait for it in vain. */
  #failure: HeddleError | null = null;

  readonly blocks: Blocks;
  readonly #meetings = new Meetings(this);
  readonly #waits = new Waits(this);
  /** Fast mode: threads in a loop that polls memory by itself. */
  readonly #spinning: Thread[] = [];
  /** How long nobody else has run, in nanoseconds. */
  #spunAlone = 0;
  /** Threads that wait until nobody else can go on. */
  readonly #quiet: Thread[] = [];
  readonly #deaths: { readonly ranks: readonly number[]; readonly due: () => boolean }[] = [];
  /** By rank: what it has done that others may notice. */
  readonly #noticeable: number[];
  readonly #stepLimit: number;
  readonly #watcher: Watcher | null;
  #turnPlanned = false;
  /** How many hosts wait for what is outside; when all of those go on. */
  #still = 0;
  #moving: Promise<unknown> = Promise.resolve();
  /** If it comes after a pause. */
  #pause: NodeJS.Timeout | null = null;
  #hostTold = false;
  #idleTurns = 0;
  /** That a rank's GPU holds at once. */
  readonly residentBlocks: number;
  #nextBuffer = 0;
  #nextThread = 0;
  #acting: HostThread | null = null;
  readonly #idleHosts = new Set<HostThread>();
  /** Host threads that may hear of something from outside the machine; whether there ever were any. */
  #outside = 0;
  #connected = false;
  /** Up to when the time without work has been counted, in milliseconds. */
  #idleSince = 0;
  /** How long it has been without work, as counted so far. */
  #idleMs = 0;
  /** Counts what may have given one of them something to do. */
  #moves = 0;
  /** The host programs that have accessed mapped memory, as threads of the detector, by rank. */
  readonly #hostPrograms = new Map<number, number>();
  #nextNumber = 0;
  /** Streams made so far, by rank. */
  readonly #streams: number[];

  constructor(options: EngineOptions) {
    const ranks = requireInteger('ranks', options.ranks, 1, maxSimulatedRanks);
    const mode = requireOneOf('mode', options.mode ?? 'fast', ['fast', 'checked']);
    const seed = requireText('seed', options.seed ?? '0');
    const configuration = requireText('configuration', options.configuration ?? '');
    this.print = options.print ?? console.log;
    requireFunction('print', this.print);
    if (options.watch !== undefined) requireFunction('watch', options.watch);
    this.ranks = ranks;
    this.mode = mode;
    this.seed = seed;
    this.sites = new SiteRegistry(options.hostLines ?? true);
    const site = (id: SiteId) => this.sites.site(id);
    const assume = options.assume ?? [];
    for (const one of assume) requireOneOf('assume', one, assumptions);
    const detector = mode === 'checked' ? new Detector({ seed, configuration, site, assume }) : null;
    this.#watcher = options.watch?.(site, this.seen) ?? null;
    this.detector = detector && this.#watcher ? watched(detector, this.#watcher) : detector;
    this.log = new FindingLog(seed, configuration, () => detector?.staleReads ?? []);
    this.random = Random.from(seed);
    const schedule = options.schedule ?? (mode === 'fast' ? 'in-order' : 'random');
    this.schedule = scheduleOf(
      requireOneOf('schedule', schedule, ['in-order', 'random', 'priority']),
      ranks,
      this.random,
    );
    this.residentBlocks = requireInteger('residentBlocks', options.residentBlocks ?? 132, 1, 2 ** 20);
    this.#stepLimit = requireSteps(
      options.stepLimit ?? (mode === 'fast' ? Number.POSITIVE_INFINITY : 100_000_000),
    );
    const zeros = () => new Array<number>(ranks).fill(0);
    this.killed = new Array(ranks).fill(false);
    this.#noticeable = zeros();
    this.#streams = zeros();
    this.blocks = new Blocks(this, ranks);
    this.hosts = new Hosts(ranks, () => {
      this.#hostTold = true;
      this.work();
    });
  }

  // Numbers, unique in the run.

  newBuffer(rank: number, bytes: number, purpose: string): SimBuffer {
    return new SimBuffer(this.#nextBuffer++, purpose, rank, bytes);
  }

  /** Counts the streams of a device. */
  newStream(rank: number): number {
    return this.#streams[rank]!++;
  }

  newNumber(): number {
    return this.#nextNumber++;
  }

  /** The actor that accesses mapped memory now, from the host of `rank`. */
  hostThread(ofRank: number): number {
    if (this.#acting !== null) return this.#acting.id;
    const rank = this.hosts.programOf(ofRank);
    return getOrMake(this.#hostPrograms, rank, () => this.#newHostThread(rank, null));
  }

  /** The rank whose program that is. */
  get hostProgram(): string {
    return this.#acting?.program.name ?? hostProgram;
  }

  newThreads(count: number): number {
    const first = this.#nextThread;
    this.#nextThread += count;
    return first;
  }

  #newHostThread(rank: number, name: string | null): number {
    const thread = this.newThreads(1);
    this.detector?.hostThreadStarted(thread, this.hosts.programOf(rank), name);
    return thread;
  }

  /** Starts a thread of the host of `rank`, whose turns the schedule gives it. The function that it returns ends the thread. */
  startHost(rank: number, program: HostProgram): () => void {
    const host = new HostThread(rank, this.#newHostThread(rank, program.name), program);
    if (program.hearsOutside) {
      this.#outside++;
      this.#connected = true;
    }
    this.schedule.add(host);
    this.work();
    return () => this.#endHost(host);
  }

  #endHost(host: HostThread): void {
    if (host.ended) return;
    host.ended = true;
    this.#idleHosts.delete(host);
    if (host.program.hearsOutside) this.#outside--;
    this.detector?.hostThreadEnded(host.id, this.hosts.programOf(host.rank));
    this.work();
  }

  #runHost(host: HostThread): void {
    if (host.ended) return;
    this.#acting = host;
    host.saw = this.#moves - 1; // its own step is no move
    let worked: boolean;
    try {
      worked = host.program.step();
    } catch (error) {
      this.#acting = null;
      this.#endHost(host);
      host.program.onError(error);
      return;
    }
    this.#acting = null;
    if (worked) {
      this.work();
      this.schedule.add(host);
      return;
    }
    // It found nothing to do: it looks again when others have moved, or a little later.
    this.#moves--;
    // Checked mode looks at more moments than those at which nobody else can run.
    if (this.mode === 'checked' && this.random.below(8) !== 0) this.schedule.add(host);
    else this.#idleHosts.add(host);
  }

  /** Which of `count` stores a host's load reads. A host that reads an older one has to look again, though nothing moves. */
  pickHostStore(count: number): number {
    const choice = this.schedule.pickStore(count);
    if (choice !== 0) this.#moves++;
    return choice;
  }

  #wakeHosts(which: (host: HostThread) => boolean): boolean {
    let woken = false;
    for (const host of this.#idleHosts) {
      if (!which(host)) continue;
      this.#idleHosts.delete(host);
      this.schedule.add(host);
      woken = true;
    }
    return woken;
  }

  // Turns.

  /** There may be something to do: makes sure that a turn comes. */
  work(): void {
    this.#idleTurns = 0;
    this.#moves++;
    this.spins.stir();
    this.#pause?.ref();
    this.#planTurn();
  }

  /**
   * Nothing moves until then, and hosts that wait go on in the order in which they came: otherwise the time that it takes would
   * decide who runs before whom, and no seed could repeat it.
   */
  async standStill<T>(until: Promise<T>): Promise<T> {
    this.#still++;
    const earlier = this.#moving;
    this.#moving = Promise.allSettled([earlier, until]);
    try {
      await earlier;
      return await until;
    } finally {
      this.#still--;
      this.work();
    }
  }

  #planTurn(): void {
    if (this.#turnPlanned) return;
    this.#turnPlanned = true;
    inTurnOfItsOwn(() => this.#turn());
  }

  /** A turn after a pause, for those who hear from outside. A process in which nobody else waits for one may end. */
  #planLaterTurn(): void {
    if (this.#turnPlanned) return;
    this.#turnPlanned = true;
    this.#pause = setTimeout(() => this.#turn(), 1);
    if (!this.hosts.anyPending && !this.#waits.any) this.#pause.unref();
  }

  #turn(): void {
    this.#turnPlanned = false;
    this.#pause = null;
    if (this.#still > 0) return;
    this.#hostTold = false;
    for (let n = 0; n < stepsPerTurn; n++) {
      if (this.#hostTold) break;
      const task = this.schedule.next();
      if (task === undefined) {
        if (this.#findWork()) continue;
        this.#idle();
        return;
      }
      this.steps++;
      this.#moves++;
      this.#waits.now++;
      if (this.#deaths.length > 0) this.#dieOnTime();
      if (this.killed[task.rank]) continue;
      if (this.mode === 'checked' && this.steps % wakeEvery === 0) this.#wakeOverdue();
      if (task.isThread) {
        this.#runThread(task as Thread);
      } else if (task instanceof HostThread) {
        this.#runHost(task);
      } else {
        (task as Agent).run();
        this.spins.stir();
      }
      if (this.mode === 'checked' && this.spins.step(this.blocks) && !this.#endSpins()) return;
      // A thread that spins keeps the schedule busy, so idle hosts would never run again: they are woken to look for work.
      if (this.#idleHosts.size > 0 && this.spins.stands) this.#wakeHosts(() => true);
      if (this.steps > this.#stepLimit) {
        this.#giveUp(`no end in sight after ${this.steps} steps: some loop waits for what never comes`);
        return;
      }
    }
    this.#planTurn();
  }

  /** Nothing can run. Either the hosts will add something, or whoever waits now waits forever. */
  #idle(): void {
    const listens = this.#wakeHosts((host) => host.program.hearsOutside);
    if (this.#connected && this.#endOverdueWaits()) return;
    const blocked = this.hosts.anyPending && this.hosts.allBlocked(this.killed);
    if (listens || (this.#connected && this.#waits.any && !blocked)) {
      this.#idleTurns++;
      if (this.#idleMs > outsidePatienceMs) this.#planLaterTurn();
      else this.#planTurn();
      return;
    }
    if (!blocked) return;
    if (this.#idleTurns++ < patience) {
      this.#planTurn();
      return;
    }
    this.#endHopelessWaits();
    this.#idleTurns = 0;
    this.#moves++;
    this.#planTurn();
  }

  /** Nobody is ready: looks for those who have become so, or who were held back. */
  #findWork(): boolean {
    let found =
      (this.mode === 'fast' && this.#waits.pollAll()) ||
      this.schedule.bringIn() ||
      this.#wakeHosts((host) => host.saw < this.#moves);
    if (!found) found = this.#waits.wakeFirst();
    if (this.#spinning.length === 0) return found;
    if (this.#connected) {
      this.#endOverdueWaits();
      this.#idleTurns++;
    } else {
      // If they are all there is, they may be waiting for time to pass, or for others whose limits run out meanwhile.
      this.#spunAlone = found ? 0 : this.#spunAlone + nanosecondsPerLook;
      if (!found) this.#waits.now += nanosecondsPerLook;
      if (this.#spunAlone % 1e6 === nanosecondsPerLook && this.hosts.allBlocked(this.killed))
        if (this.#waits.expireWithin(this.#spunAlone / 1000)) this.timeLimits++;
    }
    for (const thread of this.#spinning.splice(0)) this.schedule.add(thread);
    return true;
  }

  /** The tasks that run may be polling for what only a sleeper, or a host that found nothing to do, will do. */
  #wakeOverdue(): void {
    this.#waits.wakeOverdue();
    this.#wakeHosts((host) => host.saw < this.#moves);
  }

  // Threads.

  makeReady(thread: Thread): void {
    thread.state = 'ready';
    this.schedule.add(thread);
  }

  #runThread(thread: Thread): void {
    if (thread.wait !== null) {
      if (!thread.poll()) {
        this.#waits.park(thread);
        return;
      }
    }
    thread.turns = 0;
    let step: IteratorResult<number, void>;
    try {
      step = thread.iterator!.next();
    } catch (error) {
      this.failed(thread, error);
      return;
    }
    switch (step.value) {
      case pause.end:
        this.#endThread(thread);
        return;
      case pause.preempt:
        // In fast mode only a loop that polls yields here: all others come first, or it might keep them from running.
        if (this.mode === 'fast') this.#spinning.push(thread);
        else this.schedule.add(thread);
        return;
      case pause.barrier:
        this.#meetings.atBarrier(thread);
        return;
      case pause.quiet:
        thread.state = 'quiet';
        this.#quiet.push(thread);
        return;
      case pause.cluster:
        this.#meetings.inCluster(thread);
        return;
      case pause.group:
        this.#meetings.inGroup(thread);
        return;
      case pause.arrived:
        this.#meetings.arrived(thread);
        return;
      case pause.lanes:
        this.#meetings.inLanes(thread);
        return;
      case pause.wait:
        // Fast code has already looked; checked mode looks when the schedule next picks the thread.
        if (this.mode === 'fast' && thread.wait !== null) this.#waits.park(thread);
        else this.schedule.add(thread);
        this.#tellWait(thread);
        return;
      case pause.previous:
        this.#followPrevious(thread);
        return;
      default:
        thread.state = 'sleep';
    }
  }

  #tellWait({ id, wait, block }: Thread): void {
    if (wait === null || this.#watcher?.waitStarted === undefined) return;
    const { access, buffer, offset, wanted } = wait;
    this.#watcher.waitStarted(id, block.launch.firstSite + access.site, buffer, offset, wanted);
  }

  wake(buffer: SimBuffer, offset: number, bytes: number): void {
    this.#waits.wake(buffer, offset, bytes);
  }

  /** Who goes round and round without a wait sees ever longer steps of the time: loops that wait for the clock alone end soon. */
  clock(turns: number): bigint {
    this.#waits.now += 1 + turns;
    return BigInt(this.time);
  }

  get time(): number {
    return this.#waits.now;
  }

  sleep(thread: Thread, nanoseconds: number): void {
    this.#waits.sleep(thread, nanoseconds);
  }

  #followPrevious(thread: Thread): void {
    const { previous } = thread.block.launch;
    if (previous === null || previous.ended) {
      this.detector?.awaitPrevious(thread.id);
      this.schedule.add(thread);
    } else {
      thread.state = 'previous';
      previous.followers.push(thread);
    }
  }

  failed(thread: Thread, error: unknown): void {
    const { launch } = thread.block;
    launch.error ??= new HeddleError(
      'HEDDLE_LAUNCH',
      `kernel ${launch.kernel} failed on rank ${thread.rank} in block ${thread.block.index}, thread ${thread.index}: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
    this.#failure ??= launch.error;
    this.#endThread(thread);
  }

  #endThread(thread: Thread): void {
    const { block } = thread;
    thread.end();
    this.spins.stir();
    block.live--;
    if (block.live === 0) {
      this.blocks.end(block);
      this.#meetings.clusterLeft(block);
      return;
    }
    this.#meetings.left(thread);
  }

  blockReleased(block: Block): void {
    this.blocks.release(block);
  }

  // The end of hope.

  /**
   * Called when nothing can run and no host can add anything. Meetings that some lanes missed go on without them;
   * failing that, all waits end as if their limits had run out, so that kernels leave and hosts get their errors.
   */
  #endHopelessWaits(): void {
    if (this.#endQuiet()) return;
    if (this.#meetings.endHopeless(this.blocks.live, this.#waits.any)) return;
    if (!this.#waits.any) {
      this.#giveUp('streams wait for events that will never be recorded');
      return;
    }
    this.#reportWaits(this.#waits.reports());
    // After a rank's death others may well wait for it in vain, one wait after the other. Without a check a machine may run for hours, in which
    // waits add up: then it ends only behind a kernel that failed.
    const ends = this.mode === 'checked' || this.#failure !== null;
    if (ends && !this.killed.includes(true) && this.spins.ranOut()) {
      this.#giveUp('loops wait again and again for what never comes, and have no limit');
      return;
    }
    this.timeLimits++;
    this.#waits.expire();
  }

  #endQuiet(): boolean {
    const quiet = this.#quiet.splice(0);
    this.detector?.quiet(quiet);
    for (const thread of quiet) this.makeReady(thread);
    return quiet.length > 0;
  }

  /**
   * Called when all that runs are loops over memory in which nothing changes. Loops that look at the clock end now, because their time is
   * over; those with the longest limits end only the second time. If no loop ends, the limits of waits run out, since a loop may
   * be waiting for such a thread. If nothing waits either, the machine gives up. False if it has stopped.
   */
  #endSpins(): boolean {
    const { spins } = this;
    if (this.#outside === 0 && this.hosts.allBlocked(this.killed) && !this.#endQuiet()) {
      if (spins.timesOver === 2 && (!this.#waits.any || spins.ranOut())) {
        this.#giveUp('loops look at memory for what never comes, and have no limit');
        return false;
      }
      const waiting = [...spins.reports(), ...this.#waits.reports()];
      if (waiting.length > 0) this.#reportWaits(waiting);
      this.#waits.now += 1e6 * longestMs;
      this.timeLimits++;
      if (spins.timesOver === 2) this.#waits.expire();
      else spins.timesOver++;
    }
    spins.forget();
    return true;
  }

  /**
   * A kernel that waits for something from outside has real time for it, since only that passes there. Its limit counts the time in which
   * the machine has no work but to poll, also where others have had some in between.
   */
  #endOverdueWaits(): boolean {
    const now = performance.now();
    const idle = this.#idleTurns === 0 ? 0 : now - this.#idleSince;
    this.#idleSince = now;
    this.#idleMs = idle === 0 ? 0 : this.#idleMs + idle;
    this.#waits.now += Math.round(1e6 * idle);
    if (!this.#waits.pass(1000 * idle)) return false;
    this.timeLimits++;
    this.work();
    return true;
  }

  #reportWaits(waiting: Extract<FindingContent, { kind: 'stuck-wait' }>['waiting']): void {
    // After a rank's death, or a launch that failed, it is no mistake to wait for it in vain.
    if (this.mode === 'fast' || this.killed.includes(true) || this.#failure !== null) return;
    this.log.add({ kind: 'stuck-wait', waiting });
  }

  #giveUp(message: string): void {
    // Whatever else was found explains it.
    if (this.mode === 'checked' && this.#failure === null && this.log.findings.length === 0)
      this.log.add({ kind: 'failure', message });
    while (this.schedule.next() !== undefined || this.schedule.bringIn());
    this.#spinning.length = 0;
    this.#waits.clear();
    this.hosts.fail(
      this.#failure ?? new HeddleError('HEDDLE_STUCK', `the simulated machine stopped: ${message}`),
    );
  }

  /** A simulated SIGKILL, now or once the machine has made `atStep` steps. */
  kill(rank: number, atStep: number): void {
    this.#killWhen([rank], () => atStep <= this.steps);
  }

  /** Kills several ranks at once, when together they have done `count` more things that others may notice. */
  killAfter(ranks: readonly number[], count: number): void {
    const done = (): number => ranks.reduce((sum, rank) => sum + this.#noticeable[rank]!, 0);
    const last = done() + count;
    this.#killWhen(ranks, () => done() >= last);
  }

  /** A launch of the rank begins, a write of it has come, or it hears of one. */
  didNoticeable(rank: number): void {
    this.#noticeable[rank]!++;
  }

  #killWhen(ranks: readonly number[], due: () => boolean): void {
    this.#deaths.push({ ranks, due });
    this.#dieOnTime();
    this.work();
  }

  #dieOnTime(): void {
    for (let i = this.#deaths.length - 1; i >= 0; i--) {
      const { ranks, due } = this.#deaths[i]!;
      if (!due()) continue;
      this.#deaths.splice(i, 1);
      for (const rank of ranks) this.#die(rank);
    }
  }

  #die(rank: number): void {
    if (this.killed[rank]) return;
    this.killed[rank] = true;
    this.#waits.forget(rank);
    this.blocks.forget(rank);
    this.hosts.fail(
      new HeddleError('HEDDLE_KILLED', `rank ${rank} of the simulated machine was killed`),
      rank,
    );
  }
}

/** Runs something in a turn of the event loop of its own, behind what hosts already wait for. */
const inTurnOfItsOwn: (run: () => void) => void =
  globalThis.setImmediate === undefined ? overChannel() : (run) => setImmediate(run);

/** Browsers have no setImmediate, and let timers that set each other wait for milliseconds. */
function overChannel(): (run: () => void) => void {
  const { port1, port2 } = new MessageChannel();
  const waiting: (() => void)[] = [];
  port1.addEventListener('message', () => waiting.shift()?.());
  port1.start();
  return (run) => {
    waiting.push(run);
    port2.postMessage(null);
  };
}
