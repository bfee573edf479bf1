/** Blocks and launches, from their start to their end. Objects that have ended are used again: threads, and shared memory. */
import type { Compiled } from './compiled.js';
import type { SimBuffer } from './memory.js';
import { Agent, type Schedule } from './schedule.js';
import { Block, type SimLaunch, Thread, type ThreadServices } from './thread.js';

export interface MachineServices extends ThreadServices {
  /** How many of them a GPU holds at once. */
  readonly residentBlocks: number;
  steps: number;
  /** Numbers for so many threads; returns the first. */
  newThreads(count: number): number;
  /** The thread may go on. */
  makeReady(thread: Thread): void;
  failed(thread: Thread, error: unknown): void;
}

/** When a launch ran, in steps of the machine. */
export interface TraceEntry {
  readonly rank: number;
  /** 'rank 0 stream 2' */
  readonly stream: string;
  readonly kernel: string;
  readonly launch: number;
  readonly start: number;
  readonly end: number;
}

/** The trace keeps at least this many launches, and at most twice as many. */
const traced = 50_000;

export class Blocks {
  readonly trace: TraceEntry[] = [];
  /** Blocks whose threads run. */
  readonly live = new Set<Block>();
  readonly #machine: MachineServices;
  readonly #starters: BlockStarter[];
  /** Threads that have ended, by rank and kernel. */
  readonly #spareThreads: Map<Compiled, Thread[]>[];
  readonly #spareShared = new Map<Compiled, (readonly SimBuffer[])[]>();
  #nextBlock = 0;

  constructor(machine: MachineServices, ranks: number) {
    const { residentBlocks, schedule } = machine;
    this.#machine = machine;
    this.#spareThreads = Array.from({ length: ranks }, () => new Map());
    this.#starters = Array.from(
      { length: ranks },
      (_, rank) => new BlockStarter(rank, residentBlocks, schedule, (launch) => this.#startBlocks(launch)),
    );
  }

  launch(launch: SimLaunch): void {
    launch.startStep = this.#machine.steps;
    this.#starters[launch.home]!.add(launch);
  }

  liveThreads(): number {
    let threads = 0;
    for (const block of this.live) threads += block.live;
    return threads;
  }

  /** The rank's blocks stop where they are. */
  forget(rank: number): void {
    for (const block of this.live) if (block.launch.home === rank) this.live.delete(block);
  }

  #startBlocks(launch: SimLaunch): void {
    const { compiled } = launch;
    const cluster = Array.from({ length: compiled.module.cluster }, () => this.#makeBlock(launch));
    for (const block of cluster) block.cluster = cluster;
    if (cluster.length > 1) this.#machine.detector?.clusterStarted(cluster.map(({ id }) => id));
    for (const block of cluster) {
      if (compiled.isGenerator) this.#startThreads(block);
      else this.#runToEnd(block);
    }
  }

  #makeBlock(launch: SimLaunch): Block {
    const { compiled } = launch;
    const index = launch.placeOf(launch.nextBlock++);
    const shared = this.#takeShared(launch.home, compiled);
    const block = new Block(this.#nextBlock++, launch, index, shared, this.#machine.newThreads(launch.block));
    launch.liveBlocks++;
    this.#machine.detector?.blockStarted(block.id, launch.id, index, block.firstThread, launch.block);
    return block;
  }

  #startThreads(block: Block): void {
    const { launch } = block;
    const spare = this.#spareThreads[launch.home]!.get(launch.compiled);
    block.live = launch.block;
    for (let i = 0; i < launch.block; i++) {
      let thread = spare?.pop();
      if (thread === undefined) {
        thread = new Thread(block, i, launch.home, this.#machine);
        thread.iterator = launch.compiled.run(thread);
      } else {
        thread.become(block, i);
      }
      block.threads.push(thread);
    }
    this.live.add(block);
    for (const thread of block.threads) this.#machine.schedule.add(thread);
  }

  /** A kernel that never waits: its threads run one after the other, as one step each. */
  #runToEnd(block: Block): void {
    const { launch } = block;
    const { run } = launch.compiled;
    const thread = new Thread(block, 0, launch.home, this.#machine);
    this.#machine.steps += launch.block - 1;
    try {
      for (let i = 0; i < launch.block; i++) {
        block.live = launch.block - i;
        thread.index = i;
        thread.turns = 0;
        run(thread);
        thread.end();
      }
      block.live = 0;
      this.end(block);
    } catch (error) {
      block.live = 1;
      this.#machine.failed(thread, error);
    }
  }

  end(block: Block): void {
    const { launch } = block;
    this.live.delete(block);
    if (launch.error === null) this.#reportUnawaited(block);
    this.#machine.detector?.blockEnded(block.id);
    this.#giveShared(launch.compiled, block.shared);
    if (launch.compiled.isGenerator && launch.error === null) this.#keepThreads(block);
    this.release(block);
    launch.liveBlocks--;
    this.#starters[launch.home]!.blockEnded();
    if (launch.liveBlocks === 0 && launch.nextBlock === launch.grid) this.#endLaunch(launch);
  }

  #reportUnawaited({ mbarriers }: Block): void {
    const message =
      'its block ends while this load may still write shared memory, which is then the next block’s: await its mbarrier ' +
      '(g.mbarrier.await) before the end of the kernel';
    for (const { to, access } of mbarriers?.unawaited() ?? [])
      this.#machine.log.misuse(message, to.buffer, to.offset, access);
  }

  /** Notes that the block has called releaseNext, or has ended. */
  release(block: Block): void {
    if (block.released) return;
    block.released = true;
    const { launch } = block;
    if (++launch.releasedBlocks === launch.grid) launch.stream.kick();
  }

  #endLaunch(launch: SimLaunch): void {
    launch.ended = true;
    launch.endStep = this.#machine.steps;
    launch.previous = null;
    this.#machine.detector?.launchEnded(launch.id);
    if (this.trace.length === 2 * traced) this.trace.splice(0, traced);
    const { id, home: rank, stream, kernel, startStep: start, endStep: end } = launch;
    this.trace.push({ rank, stream: stream.key, kernel, launch: id, start, end });
    launch.stream.launchEnded(launch);
    for (const thread of launch.followers.splice(0)) {
      this.#machine.detector?.awaitPrevious(thread.id);
      this.#machine.makeReady(thread);
    }
  }

  #keepThreads(block: Block): void {
    const { compiled, home } = block.launch;
    const spare = this.#spareThreads[home]!;
    const kept = spare.get(compiled);
    if (kept === undefined) spare.set(compiled, block.threads);
    else for (const thread of block.threads) kept.push(thread);
  }

  #takeShared(rank: number, compiled: Compiled): readonly SimBuffer[] {
    // They are reused where nobody tells one block's memory from another's.
    const spare = this.#spareShared.get(compiled)?.pop();
    if (spare !== undefined) return spare;
    return compiled.shared.map(({ bytes, ranges }) => {
      const buffer = this.#machine.newBuffer(rank, bytes, 'shared memory');
      buffer.space = 'shared';
      for (const { name, offset, elementBytes, length } of ranges)
        buffer.name(name, offset, elementBytes, length);
      if (this.#machine.mode === 'checked') buffer.poison(0, bytes);
      return buffer;
    });
  }

  #giveShared(compiled: Compiled, buffers: readonly SimBuffer[]): void {
    const { detector, mode } = this.#machine;
    for (const buffer of buffers) detector?.bufferGone(buffer);
    if (buffers.length === 0 || mode === 'checked') return;
    const spare = this.#spareShared.get(compiled);
    if (spare === undefined) this.#spareShared.set(compiled, [buffers]);
    else spare.push(buffers);
  }
}

/** Starts a rank's blocks as room allows: in order of launch and index, or as the schedule likes. */
class BlockStarter extends Agent {
  readonly #launches: SimLaunch[] = [];
  #resident = 0;
  #queued = false;
  override readonly startsBlocks = true;
  readonly #limit: number;
  readonly #schedule: Schedule;
  readonly #start: (launch: SimLaunch) => void;

  constructor(
    readonly rank: number,
    limit: number,
    schedule: Schedule,
    start: (launch: SimLaunch) => void,
  ) {
    super();
    this.#limit = limit;
    this.#schedule = schedule;
    this.#start = start;
  }

  add(launch: SimLaunch): void {
    this.#launches.push(launch);
    this.#kick();
  }

  blockEnded(): void {
    this.#resident--;
    this.#kick();
  }

  #kick(): void {
    if (this.#queued || this.#launches.length === 0 || this.#resident >= this.#limit) return;
    this.#queued = true;
    this.#schedule.add(this);
  }

  run(): void {
    this.#queued = false;
    const launch = this.#launches[0];
    if (launch === undefined || this.#resident >= this.#limit) return;
    const { cluster } = launch.compiled.module;
    this.#resident += cluster;
    if (launch.nextBlock + cluster === launch.grid) this.#launches.shift();
    this.#start(launch);
    this.#kick();
  }
}
