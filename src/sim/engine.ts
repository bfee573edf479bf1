/**
 * The heart of the simulated machine: it runs blocks of several kernels of several ranks, one thread at a time, in
 * the order that a schedule picks, between turns of the host programs that launched them.
 *
 * Host programs are ordinary async functions. The engine runs in turns of the event loop: a turn ends when a host
 * was told something (so that it can react before anything else happens, which keeps runs repeatable) or after a
 * number of steps (so that the process stays responsive).
 */
import { HeddleError } from '../errors/index.js';
import { type Compiled, type Mode, pause, warpOps } from './compiled.js';
import { describeCondition } from './condition.js';
import type { Detector } from './detector.js';
import type { FindingLog } from './findings.js';
import { Hosts } from './hosts.js';
import { SimBuffer } from './memory.js';
import type { Random } from './random.js';
import { Agent, type Schedule, type Task } from './schedule.js';
import { Block, type Hub, type Launch, Thread } from './thread.js';
import { completeWarpOperation } from './warp.js';

const stepsPerTurn = 20_000;
/** How long a look of a thread that polls takes, where time passes for nobody else. */
const nanosecondsPerLook = 1000;
/** The trace keeps at least this many launches, and at most twice as many. */
const traced = 50_000;
/** How many turns of the event loop a machine without runnable work waits before it believes its hosts blocked. */
const patience = 2;

/** Likewise, before it looks only once a millisecond for what may come from outside. */
const outsidePatience = 1000;

/** What a thread of a host does, beside the host program. */
export interface HostProgram {
  /** For findings. */
  readonly name: string;
  /** Whether something outside the machine, such as a network, may give it work at any time. */
  readonly hearsOutside: boolean;
  /** One turn; true when it did anything. What it throws ends the thread. */
  step(): boolean;
  onError(error: unknown): void;
}

/** When a launch ran, in steps of the machine. */
export interface TraceEntry {
  readonly rank: number;
  readonly kernel: string;
  readonly launch: number;
  readonly start: number;
  readonly end: number;
}

export interface KernelStatistics {
  launches: number;
  /** Bytes that its threads stored to, and loaded from, memory of other ranks. */
  bytesStored: number;
  bytesLoaded: number;
}

export interface EngineOptions {
  readonly ranks: number;
  readonly mode: Mode;
  readonly residentBlocks: number;
  readonly stepLimit: number;
  readonly random: Random;
  readonly schedule: Schedule;
  readonly log: FindingLog;
  readonly detector: Detector | null;
}

export class Engine implements Hub {
  readonly mode: Mode;
  readonly schedule: Schedule;
  readonly random: Random;
  readonly log: FindingLog;
  readonly detector: Detector | null;
  readonly hosts: Hosts;
  readonly trace: TraceEntry[] = [];
  readonly kernels = new Map<string, KernelStatistics>();
  readonly killed: boolean[];
  readonly seen: SimBuffer;
  steps = 0;
  timeLimits = 0;

  private readonly starters: BlockStarter[];
  private readonly liveBlocks = new Set<Block>();
  private readonly parked = new Set<Thread>();
  /** Checked mode: parked threads by the 16-byte line they wait for, a buffer. */
  private readonly parkedAt = new Map<SimBuffer, Map<number, Thread[]>>();
  /** Fast mode: threads in a loop that polls memory by itself. */
  private readonly spinning: Thread[] = [];
  private readonly asleep: { readonly thread: Thread; readonly until: number }[] = [];
  /** Threads that have ended, by rank and kernel. */
  private readonly spareThreads: Map<Compiled, Thread[]>[];
  private readonly spareShared = new Map<number, SimBuffer[]>();
  private readonly deaths: { readonly rank: number; readonly atStep: number }[] = [];
  private readonly stepLimit: number;
  /** Nanoseconds: one a step, and more when everybody sleeps. */
  private time = 0;
  private turnPlanned = false;
  private hostTold = false;
  private idleTurns = 0;
  private nextBuffer = 0;
  private nextThread = 0;
  /** The host thread that is taking its turn. */
  private acting: HostThread | null = null;
  /** Host threads that found nothing to do. */
  private readonly idleHosts = new Set<HostThread>();
  /** Counts what may have given one of them something to do. */
  private moves = 0;
  /** The host programs that have accessed mapped memory, as threads of the detector, by rank. */
  private readonly hostPrograms = new Map<number, number>();
  private nextBlock = 0;
  private nextNumber = 0;
  private readonly ordinals: Readonly<Record<'launch' | 'stream', number[]>>;

  constructor(options: EngineOptions) {
    this.mode = options.mode;
    this.schedule = options.schedule;
    this.random = options.random;
    this.log = options.log;
    this.detector = options.detector;
    this.stepLimit = options.stepLimit;
    this.seen = new SimBuffer(-1, 'what an atomic load has read', -1, 16);
    this.killed = new Array(options.ranks).fill(false);
    const zeros = () => new Array<number>(options.ranks).fill(0);
    this.ordinals = { launch: zeros(), stream: zeros() };
    this.spareThreads = Array.from({ length: options.ranks }, () => new Map());
    this.starters = Array.from(
      { length: options.ranks },
      (_, rank) => new BlockStarter(rank, options.residentBlocks, this),
    );
    this.hosts = new Hosts(options.ranks, () => {
      this.hostTold = true;
      this.work();
    });
  }

  // Numbers, unique in the run.

  newBuffer(rank: number, bytes: number, purpose: string): SimBuffer {
    return new SimBuffer(this.nextBuffer++, purpose, rank, bytes);
  }

  /** Counts the launches, or the streams, of a device. */
  newOrdinal(rank: number, of: 'launch' | 'stream'): number {
    return this.ordinals[of][rank]!++;
  }

  newNumber(): number {
    return this.nextNumber++;
  }

  /** Who accesses mapped memory now, from the host of `rank`. */
  hostThread(rank: number): number {
    if (this.acting !== null) return this.acting.id;
    let thread = this.hostPrograms.get(rank);
    if (thread === undefined) {
      thread = this.newHostThread(rank, null);
      this.hostPrograms.set(rank, thread);
    }
    return thread;
  }

  private newHostThread(rank: number, name: string | null): number {
    const thread = this.nextThread++;
    this.detector?.hostThreadStarted(thread, rank, name);
    return thread;
  }

  /** Starts a thread of the host of `rank`, whose turns the schedule gives it. What it returns ends the thread. */
  startHost(rank: number, program: HostProgram): () => void {
    const host = new HostThread(rank, this.newHostThread(rank, program.name), program, this);
    this.schedule.add(host as Task);
    this.work();
    return () => {
      if (host.ended) return;
      host.ended = true;
      this.idleHosts.delete(host);
      this.detector?.hostThreadEnded(host.id, rank);
      this.work();
    };
  }

  act(host: HostThread, turn: () => boolean): boolean {
    this.acting = host;
    host.saw = this.moves - 1; // its own step is no move
    try {
      return turn();
    } finally {
      this.acting = null;
    }
  }

  /** It found nothing to do: it looks again when others have moved, or a little later. */
  hostIdles(host: HostThread): void {
    this.moves--;
    // Checked mode looks at more moments than those at which nobody else can run.
    if (this.mode === 'checked' && !this.explores && this.random.below(8) !== 0)
      this.schedule.add(host as Task);
    else this.idleHosts.add(host);
  }

  /** Which of `count` stores a host's load reads. Who reads an older one has to look again, though nothing moves. */
  pickHostStore(count: number): number {
    const choice = this.pickStore(count);
    if (choice !== 0) this.moves++;
    return choice;
  }

  private wakeHosts(which: (host: HostThread) => boolean): boolean {
    let woken = false;
    for (const host of this.idleHosts) {
      if (!which(host)) continue;
      this.idleHosts.delete(host);
      this.schedule.add(host as Task);
      woken = true;
    }
    return woken;
  }

  // Turns.

  /** There may be something to do: makes sure that a turn comes. */
  work(): void {
    this.idleTurns = 0;
    this.moves++;
    this.planTurn();
  }

  private planTurn(later = false): void {
    if (this.turnPlanned) return;
    this.turnPlanned = true;
    if (later) setTimeout(() => this.turn(), 1);
    else setImmediate(() => this.turn());
  }

  private turn(): void {
    this.turnPlanned = false;
    this.hostTold = false;
    for (let n = 0; n < stepsPerTurn; n++) {
      if (this.hostTold) break;
      const task = this.schedule.next();
      if (task === undefined) {
        if (this.findWork()) continue;
        this.idle();
        return;
      }
      this.steps++;
      this.moves++;
      this.time++;
      if (this.deaths.length > 0) this.dieOnTime();
      if (this.killed[task.rank]) continue;
      if (task.isThread) this.runThread(task as Thread);
      else (task as Agent).run();
      if (this.steps > this.stepLimit) {
        this.giveUp(`no end in sight after ${this.steps} steps: some loop waits for what never comes`);
        return;
      }
    }
    this.planTurn();
  }

  /** Nothing can run. Either the hosts will add something, or whoever waits now waits forever. */
  private idle(): void {
    if (this.wakeHosts((host) => host.program.hearsOutside)) {
      this.planTurn(this.idleTurns++ > outsidePatience);
      return;
    }
    if (!this.hosts.anyPending || !this.hosts.allBlocked(this.killed)) return;
    if (this.idleTurns++ < patience) {
      this.planTurn();
      return;
    }
    this.endHopelessWaits();
    this.work();
  }

  /** Nobody is ready: looks for those who have become so, or who were held back. */
  private findWork(): boolean {
    let found =
      this.wakeParked() || this.schedule.bringIn() || this.wakeHosts((host) => host.saw < this.moves);
    if (!found) found = this.wakeSleepers();
    if (this.spinning.length === 0) return found;
    // If they are all there is, they may be waiting for time to pass.
    if (!found) this.time += nanosecondsPerLook;
    for (const thread of this.spinning.splice(0)) this.schedule.add(thread);
    return true;
  }

  /** Fast mode looks at parked threads only here, so that stores cost nothing. */
  private wakeParked(): boolean {
    if (this.mode === 'checked') return false;
    let woken = false;
    for (const thread of this.parked) {
      if (!thread.poll()) continue;
      this.parked.delete(thread);
      this.makeReady(thread);
      woken = true;
    }
    return woken;
  }

  /** Nothing else can run: time passes until the first sleeper wakes. */
  private wakeSleepers(): boolean {
    if (this.asleep.length === 0) return false;
    this.time = Math.max(this.time, Math.min(...this.asleep.map((sleeper) => sleeper.until)));
    for (let i = this.asleep.length - 1; i >= 0; i--) {
      if (this.asleep[i]!.until > this.time) continue;
      this.makeReady(this.asleep[i]!.thread);
      this.asleep.splice(i, 1);
    }
    return true;
  }

  // Threads.

  private makeReady(thread: Thread): void {
    thread.state = 'ready';
    this.schedule.add(thread);
  }

  private runThread(thread: Thread): void {
    if (thread.wait !== null && !thread.poll()) {
      this.park(thread);
      return;
    }
    let step: IteratorResult<number, void>;
    try {
      step = thread.iterator!.next();
    } catch (error) {
      this.failed(thread, error);
      return;
    }
    switch (step.value) {
      case pause.end:
        this.endThread(thread);
        return;
      case pause.preempt:
        // In fast mode only a loop that polls yields here: all others come first, or it might keep them from running.
        if (this.mode === 'fast') this.spinning.push(thread);
        else this.schedule.add(thread);
        return;
      case pause.barrier:
        thread.state = 'barrier';
        if (++thread.block.arrived === thread.block.live) this.releaseBarrier(thread.block);
        return;
      case pause.group:
        thread.state = 'group';
        this.releaseGroup(thread.released);
        return;
      case pause.warp: {
        const { block } = thread;
        const warp = thread.index >>> 5;
        thread.state = 'warp';
        if (++block.warpArrived[warp]! === block.warpLive[warp]) this.releaseWarp(block, warp);
        return;
      }
      case pause.wait:
        // Fast code has already looked; checked mode looks when the schedule next picks the thread.
        if (this.mode === 'fast' && thread.wait !== null) this.park(thread);
        else this.schedule.add(thread);
        return;
      case pause.previous:
        this.followPrevious(thread);
        return;
      default:
        thread.state = 'sleep';
    }
  }

  private park(thread: Thread): void {
    thread.state = 'parked';
    this.parked.add(thread);
    if (this.mode === 'fast') return;
    const { buffer, offset } = thread.wait!;
    let lines = this.parkedAt.get(buffer);
    if (lines === undefined) {
      lines = new Map();
      this.parkedAt.set(buffer, lines);
    }
    const line = lines.get(offset >>> 4);
    if (line === undefined) lines.set(offset >>> 4, [thread]);
    else line.push(thread);
    buffer.waiters++;
  }

  wake(buffer: SimBuffer, offset: number, bytes: number): void {
    const lines = this.parkedAt.get(buffer);
    if (lines === undefined) return;
    const last = (offset + bytes - 1) >>> 4;
    for (let at = offset >>> 4; at <= last; at++) {
      const line = lines.get(at);
      if (line === undefined) continue;
      lines.delete(at);
      if (lines.size === 0) this.parkedAt.delete(buffer);
      buffer.waiters -= line.length;
      for (const thread of line) {
        if (this.parked.delete(thread)) this.makeReady(thread);
      }
    }
  }

  pickStore(count: number): number {
    return this.schedule.pickStore(count);
  }

  get explores(): boolean {
    return this.schedule.ordered !== undefined;
  }

  clock(): bigint {
    return BigInt(++this.time);
  }

  sleep(thread: Thread, nanoseconds: number): void {
    this.asleep.push({ thread, until: this.time + nanoseconds });
  }

  private followPrevious(thread: Thread): void {
    const { previous } = thread.block.launch;
    if (previous === null || previous.ended) {
      this.detector?.awaitPrevious(thread.id);
      this.schedule.add(thread);
    } else {
      thread.state = 'previous';
      previous.followers.push(thread);
    }
  }

  private failed(thread: Thread, error: unknown): void {
    const { launch } = thread.block;
    launch.error ??= new HeddleError(
      'HEDDLE_LAUNCH',
      `kernel ${launch.kernel} failed on rank ${thread.rank} in block ${thread.block.index}, thread ${thread.index}: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
    this.endThread(thread);
  }

  private endThread(thread: Thread): void {
    const { block } = thread;
    const warp = thread.index >>> 5;
    thread.end();
    this.schedule.ordered?.([thread], [block.launch.stream]);
    block.live--;
    block.warpLive[warp]!--;
    if (block.live === 0) {
      this.endBlock(block);
      return;
    }
    if (block.arrived > 0 && block.arrived === block.live) this.releaseBarrier(block);
    const waiting = block.warpArrived[warp]!;
    if (waiting > 0 && waiting === block.warpLive[warp]) this.releaseWarp(block, warp);
  }

  // Meetings.

  private releaseBarrier(block: Block): void {
    const there = block.threads.filter((thread) => thread.state === 'barrier');
    if (this.detector !== null) {
      this.reportDivergence('a barrier of the block', block, there, block.threads);
      this.detector.blockBarrier(block.id);
    }
    this.schedule.ordered?.(there, there);
    block.arrived = 0;
    for (const thread of there) this.makeReady(thread);
  }

  /** Each of its warps must be there whole, and at one statement. */
  private releaseGroup(there: readonly Thread[]): void {
    if (there.length === 0) return;
    if (this.detector !== null) {
      const { block } = there[0]!;
      for (const warp of new Set(there.map(({ index }) => index >>> 5))) {
        const ofWarp = ({ index }: Thread) => index >>> 5 === warp;
        const lanes = block.threads.filter(ofWarp);
        this.reportDivergence('a barrier of a group of warps', block, there.filter(ofWarp), lanes);
      }
      this.detector.groupMet(there.map((thread) => thread.id));
    }
    this.schedule.ordered?.(there, there);
    for (const thread of there) this.makeReady(thread);
  }

  private releaseWarp(block: Block, warp: number): void {
    const { threads } = block;
    const first = warp * 32;
    const end = Math.min(first + 32, threads.length);
    let mask = 0;
    for (let i = first; i < end; i++) if (threads[i]!.state === 'warp') mask |= 1 << (i - first);
    const some = threads[first + 31 - Math.clz32(mask & -mask)]!;
    if (this.detector !== null) {
      const lanes = threads.slice(first, end);
      const there = lanes.filter((thread) => thread.state === 'warp');
      this.reportDivergence('an operation of the warp', block, there, lanes);
      // Votes and shuffles exchange registers and order no memory; CUDA promises that of the barrier alone.
      if (warpOps[some.warpOp] === 'warp.barrier')
        this.detector.warpMet(block.firstThread + first, lanes.length);
      this.schedule.ordered?.(there, there);
    }
    completeWarpOperation(block, warp, some.warpOp, mask);
    block.warpArrived[warp] = 0;
    for (let i = first; i < end; i++) if (threads[i]!.state === 'warp') this.makeReady(threads[i]!);
  }

  /** All must be there, and at the same statement. */
  private reportDivergence(
    operation: string,
    block: Block,
    there: readonly Thread[],
    expected: readonly Thread[],
  ): void {
    const { site } = there[0]!;
    if (there.length === expected.length && there.every((thread) => thread.site === site)) return;
    const present = there.filter((thread) => thread.site === site);
    this.reportAbsent(
      operation,
      block,
      present,
      expected.filter((thread) => !present.includes(thread)),
    );
  }

  private reportAbsent(
    operation: string,
    block: Block,
    present: readonly Thread[],
    absent: readonly Thread[],
  ): void {
    const { launch } = block;
    const { site } = present[0]!;
    this.log.add({
      kind: 'divergence',
      operation,
      where: launch.compiled.sites[site]!.where,
      rank: launch.home,
      kernel: launch.kernel,
      block: block.index,
      present: present.map((thread) => thread.index),
      absent: absent.map((thread) => thread.index),
    });
  }

  // Blocks and launches.

  startLaunch(launch: Launch): void {
    launch.startStep = this.steps;
    this.starters[launch.home]!.add(launch);
  }

  startBlock(launch: Launch): void {
    const { compiled } = launch;
    const index = launch.nextBlock++;
    const shared = this.takeShared(launch.home, compiled);
    const block = new Block(this.nextBlock++, launch, index, shared, this.nextThread);
    this.nextThread += launch.block;
    launch.liveBlocks++;
    this.detector?.blockStarted(block.id, launch.id, index, block.firstThread, launch.block);
    if (compiled.isGenerator) this.startThreads(block);
    else this.runToEnd(block);
  }

  private startThreads(block: Block): void {
    const { launch } = block;
    const spare = this.spareThreads[launch.home]!.get(launch.compiled);
    block.live = launch.block;
    for (let i = 0; i < launch.block; i++) {
      let thread = spare?.pop();
      if (thread === undefined) {
        thread = new Thread(block, i, launch.home, this);
        thread.iterator = launch.compiled.run(thread);
      } else {
        thread.become(block, i);
      }
      block.warpLive[i >>> 5]!++;
      block.threads.push(thread);
    }
    this.liveBlocks.add(block);
    for (const thread of block.threads) this.schedule.add(thread);
  }

  /** A kernel that never waits: its threads run one after the other, as one step each. */
  private runToEnd(block: Block): void {
    const { launch } = block;
    const { run } = launch.compiled;
    const thread = new Thread(block, 0, launch.home, this);
    this.steps += launch.block - 1;
    try {
      for (let i = 0; i < launch.block; i++) {
        thread.index = i;
        run(thread);
      }
      thread.end();
      this.endBlock(block);
    } catch (error) {
      block.live = 1;
      this.failed(thread, error);
    }
  }

  private endBlock(block: Block): void {
    const { launch } = block;
    this.liveBlocks.delete(block);
    this.detector?.blockEnded(block.id);
    this.giveShared(block.shared);
    if (launch.compiled.isGenerator && launch.error === null) this.keepThreads(block);
    this.blockReleased(block);
    launch.liveBlocks--;
    this.starters[launch.home]!.blockEnded();
    if (launch.liveBlocks === 0 && launch.nextBlock === launch.grid) this.endLaunch(launch);
  }

  blockReleased(block: Block): void {
    if (block.released) return;
    block.released = true;
    const { launch } = block;
    if (++launch.releasedBlocks === launch.grid) launch.onReleased();
  }

  private endLaunch(launch: Launch): void {
    launch.ended = true;
    launch.endStep = this.steps;
    launch.previous = null;
    this.detector?.launchEnded(launch.id);
    if (this.trace.length === 2 * traced) this.trace.splice(0, traced);
    this.trace.push({
      rank: launch.home,
      kernel: launch.kernel,
      launch: launch.id,
      start: launch.startStep,
      end: launch.endStep,
    });
    let statistics = this.kernels.get(launch.kernel);
    if (statistics === undefined) {
      statistics = { launches: 0, bytesStored: 0, bytesLoaded: 0 };
      this.kernels.set(launch.kernel, statistics);
    }
    statistics.launches++;
    statistics.bytesStored += launch.traffic[0]!;
    statistics.bytesLoaded += launch.traffic[1]!;
    launch.onEnd();
    for (const thread of launch.followers.splice(0)) {
      this.detector?.awaitPrevious(thread.id);
      this.makeReady(thread);
    }
  }

  private keepThreads(block: Block): void {
    const { compiled, home } = block.launch;
    const spare = this.spareThreads[home]!;
    const kept = spare.get(compiled);
    if (kept === undefined) spare.set(compiled, block.threads);
    else for (const thread of block.threads) kept.push(thread);
  }

  private takeShared(rank: number, compiled: Compiled): SimBuffer | null {
    if (compiled.sharedBytes === 0) return null;
    // Buffers are reused where nobody tells one block's memory from another's.
    const spare = this.spareShared.get(compiled.sharedBytes)?.pop();
    if (spare !== undefined) return spare;
    const buffer = this.newBuffer(rank, compiled.sharedBytes, 'shared memory');
    for (const { variable, offset, elementBytes, length } of compiled.shared) {
      buffer.name(variable.name, offset, elementBytes, length);
    }
    if (this.mode === 'checked') buffer.poison(0, compiled.sharedBytes);
    return buffer;
  }

  private giveShared(buffer: SimBuffer | null): void {
    if (buffer === null || this.mode === 'checked') return;
    const spare = this.spareShared.get(buffer.bytes);
    if (spare === undefined) this.spareShared.set(buffer.bytes, [buffer]);
    else spare.push(buffer);
  }

  // The end of hope.

  /**
   * Called when nothing can run and no host can add anything. Meetings that some lanes missed go on without them;
   * failing that, all waits end as if their limits had run out, so that kernels leave and hosts get their errors.
   */
  private endHopelessWaits(): void {
    if (this.endDivergentMeetings()) return;
    if (this.parked.size === 0) {
      if (this.endGroups()) return;
      this.giveUp('streams wait for events that will never be recorded');
      return;
    }
    const threads = [...this.parked];
    // After a rank's death it is no mistake to wait for it in vain.
    if (this.mode === 'checked' && !this.killed.includes(true)) {
      this.log.add({ kind: 'stuck-wait', waiting: threads.map(describeWait) });
    }
    this.timeLimits++;
    this.parked.clear();
    this.parkedAt.clear();
    for (const thread of threads) {
      const wait = thread.wait!;
      wait.expired = true;
      wait.buffer.waiters = 0;
      this.makeReady(thread);
    }
  }

  /** Lanes wait in a warp operation while the others wait in a barrier or have left. */
  private endDivergentMeetings(): boolean {
    let any = false;
    for (const block of [...this.liveBlocks]) {
      for (let warp = 0; warp < block.warpLive.length; warp++) {
        if (block.warpArrived[warp] === 0) continue;
        const lanes = block.threads.slice(warp * 32, warp * 32 + 32);
        if (!lanes.every((t) => t.state === 'warp' || t.state === 'barrier' || t.state === 'ended')) continue;
        this.releaseWarp(block, warp);
        any = true;
      }
    }
    return any;
  }

  /** Barriers of groups to which the others never come. */
  private endGroups(): boolean {
    let any = false;
    for (const block of [...this.liveBlocks]) {
      for (const { id, there } of block.groups?.abandoned() ?? []) {
        const absent = block.threads.filter((thread) => !there.includes(thread));
        this.reportAbsent(`barrier ${id} of a group of warps`, block, there, absent);
        for (const thread of there) this.makeReady(thread);
        any = true;
      }
    }
    return any;
  }

  private giveUp(message: string): void {
    if (this.mode === 'checked') this.log.add({ kind: 'failure', message });
    while (this.schedule.next() !== undefined || this.schedule.bringIn());
    this.spinning.length = 0;
    this.parked.clear();
    this.parkedAt.clear();
    this.hosts.fail(new HeddleError('HEDDLE_STUCK', `the simulated machine stopped: ${message}`));
  }

  /** A simulated SIGKILL, now or once the machine has made `atStep` steps. */
  kill(rank: number, atStep: number): void {
    this.deaths.push({ rank, atStep });
    this.dieOnTime();
    this.work();
  }

  private dieOnTime(): void {
    for (let i = this.deaths.length - 1; i >= 0; i--) {
      const { rank, atStep } = this.deaths[i]!;
      if (atStep > this.steps) continue;
      this.deaths.splice(i, 1);
      this.die(rank);
    }
  }

  private die(rank: number): void {
    if (this.killed[rank]) return;
    this.killed[rank] = true;
    for (const thread of this.parked) if (thread.rank === rank) this.parked.delete(thread);
    for (const block of this.liveBlocks) if (block.launch.home === rank) this.liveBlocks.delete(block);
    for (let i = this.asleep.length - 1; i >= 0; i--) {
      if (this.asleep[i]!.thread.rank === rank) this.asleep.splice(i, 1);
    }
    this.hosts.fail(
      new HeddleError('HEDDLE_KILLED', `rank ${rank} of the simulated machine was killed`),
      rank,
    );
  }
}

/** A thread of a host: an agent of the machine that takes a turn whenever the schedule says so. */
class HostThread extends Agent {
  readonly key: string;
  ended = false;
  /** How much had moved before its last turn. */
  saw = 0;

  constructor(
    readonly rank: number,
    readonly id: number,
    readonly program: HostProgram,
    private readonly engine: Engine,
  ) {
    super();
    this.key = `rank ${rank} ${program.name} ${id}`;
  }

  run(): void {
    if (this.ended) return;
    try {
      if (this.engine.act(this, () => this.program.step())) {
        this.engine.work();
        this.engine.schedule.add(this as Task);
      } else {
        this.engine.hostIdles(this);
      }
    } catch (error) {
      this.ended = true;
      this.program.onError(error);
    }
  }
}

function describeWait(thread: Thread) {
  const wait = thread.wait!;
  const { buffer, offset, kind, wanted } = wait;
  const word = buffer.i32[(offset >>> 2) + (kind === 'filled' ? 3 : 0)]! >>> 0;
  return {
    ...thread.report('wait', wait.order, wait.scope, wait.site),
    location: `${buffer.purpose} of rank ${buffer.rank}, ${buffer.describe(offset)}`,
    value: kind === 'phase' ? 'in its phase' : String(word),
    wanted: kind === 'phase' ? `the end of the phase of parity ${wanted}` : describeCondition(wait),
  };
}

/** Starts a rank's blocks as room allows: in order of launch and index, or as the schedule likes. */
class BlockStarter extends Agent {
  private readonly launches: Launch[] = [];
  private resident = 0;
  private queued = false;
  override readonly startsBlocks = true;
  readonly key: string;

  constructor(
    readonly rank: number,
    private readonly limit: number,
    private readonly engine: Engine,
  ) {
    super();
    this.key = `rank ${rank} blocks`;
  }

  add(launch: Launch): void {
    this.launches.push(launch);
    this.kick();
  }

  blockEnded(): void {
    this.resident--;
    this.kick();
  }

  private kick(): void {
    if (this.queued || this.launches.length === 0 || this.resident >= this.limit) return;
    this.queued = true;
    this.engine.schedule.add(this as Task);
  }

  run(): void {
    this.queued = false;
    const launch = this.launches[0];
    if (launch === undefined || this.resident >= this.limit) return;
    this.resident++;
    if (launch.nextBlock + 1 === launch.grid) this.launches.shift();
    this.engine.startBlock(launch);
    this.kick();
  }
}
