/**
 * How a time is measured. The rounds of one measurement are captured in a graph on every rank. An iteration is then:
 * cold caches (a fill larger than L2), all ranks aligned on the device, an event, the graph, an event. Its time is
 * what passed between the events ÷ the rounds in the graph; the maximum over ranks counts.
 *
 * The alignment is a kernel: all ranks meet by flags, wait a moment in which the hosts enqueue the graphs, and meet
 * again. Without it the time would hold how much later one host launches than another. Ranks of several nodes have no
 * flags in common: there everything is enqueued twice, and the first time, in which ranks meet by what is measured, is not counted.
 */

import { RankLostError } from '../../base/errors.js';
import type { Device, Event, Graph, Launcher, Memory, Stream } from '../../gpu/index.js';
import { section } from '../../lang/index.js';
import type { SharedWindow, World } from '../../net/world/index.js';
import { flagBarrierKernel, flagBarrierWindow } from '../../verify/kernels/index.js';
import { Crew } from './crew.js';
import { slowestRank } from './statistics.js';

/** What is enqueued for round n; steps that NCCL must see as groups of their own are separate. */
export type Steps = readonly ((round: number) => void)[];

/** Wraps what all ranks of a process enqueue for one step: NCCL's group. */
export type Grouping = (enqueueAll: () => void) => void;

interface Capturing {
  readonly stream: Stream;
  readonly steps: Steps;
  graph?: Graph;
}

interface TimingOptions {
  readonly iterations: number;
  readonly warmups: number;
  /** Bytes of L2 to evict before each iteration; 0 leaves caches as they are. */
  readonly l2Bytes: number;
  /** Microseconds that the ranks wait on the device while the hosts enqueue. */
  readonly pause: number;
  /** Microseconds that a rank waits for another before the measurement fails. */
  readonly limit: number;
}

/** Iterations before those that count: instruction caches, clocks, NCCL's connections. */
export const warmups = 3;

/** As every benchmark measures; simulated machines have nothing to warm up, and no hosts to wait for. */
export const timingOf = ({ kind, cacheBytes }: Device, iterations: number): TimingOptions => ({
  iterations,
  warmups: kind === 'cuda' ? warmups : 0,
  l2Bytes: cacheBytes,
  pause: kind === 'cuda' ? 300 : 0,
  limit: 20_000_000,
});

/** Shared by the ranks of a process; made before the world. */
export class TimingCrew {
  readonly capturing = new Crew<Capturing>();
}

/** The kernel by which ranks meet, and where it says whom it missed. */
interface Alignment {
  readonly window: SharedWindow;
  readonly barrier: Launcher;
  readonly failedAt: number;
}

async function prepareAlignment(world: World, limit: number): Promise<Alignment> {
  const { device, ranks, rank } = world;
  const layout = flagBarrierWindow(ranks);
  const program = await device.load(flagBarrierKernel(ranks, layout).ir());
  const window = await world.createWindow(layout.bytes, 'barrier flags');
  const barrier = program.launcher({ grid: 1, block: Math.ceil(ranks / 32) * 32, rank });
  barrier.setWindow('win', window);
  barrier.set('limit', limit);
  return { window, barrier, failedAt: window.own.address + section(layout, 'failed').offset };
}

/** One rank's stopwatch. */
export class Timing {
  readonly #crew: TimingCrew;
  /** Null where ranks are of several nodes. */
  readonly #alignment: Alignment | null;
  readonly #eviction: Memory | null;
  readonly #events: { readonly start: Event; readonly end: Event };

  private constructor(
    readonly world: World,
    readonly stream: Stream,
    readonly options: TimingOptions,
    crew: TimingCrew,
    alignment: Alignment | null,
    eviction: Memory | null,
    events: { readonly start: Event; readonly end: Event },
  ) {
    this.#crew = crew;
    this.#alignment = alignment;
    this.#eviction = eviction;
    this.#events = events;
  }

  /** Every rank calls it. */
  static async create(world: World, crew: TimingCrew, options: TimingOptions): Promise<Timing> {
    const { device } = world;
    const alignment = world.topology.nodes > 1 ? null : await prepareAlignment(world, options.limit);
    const eviction = options.l2Bytes === 0 ? null : device.allocate(2 * options.l2Bytes, 'what evicts L2');
    const events = { start: device.createEvent(), end: device.createEvent() };
    return new Timing(world, device.createStream(), options, crew, alignment, eviction, events);
  }

  /** Captures `rounds` rounds of `steps`, on all ranks. */
  async capture(rounds: number, steps: Steps, grouping: Grouping = (body) => body()): Promise<Graph> {
    const mine: Capturing = { stream: this.stream, steps };
    await this.#crew.capturing.together(this.world, mine, (all) => {
      for (const { stream } of all) stream.beginCapture();
      for (let round = 0; round < rounds; round++) {
        for (let step = 0; step < steps.length; step++) {
          grouping(() => {
            for (const rank of all) rank.steps[step]!(round);
          });
        }
      }
      for (const rank of all) rank.graph = rank.stream.endCapture();
    });
    return mine.graph!;
  }

  /** Microseconds a round of each iteration, the slowest rank's. Every rank gets the same. */
  async replay(graph: Graph, rounds: number): Promise<number[]> {
    return this.timed(rounds, () => graph.launch(this.stream));
  }

  /** The same for anything enqueued directly. */
  async timed(rounds: number, enqueue: () => void): Promise<number[]> {
    const { iterations, warmups } = this.options;
    const mine = new Float64Array(iterations);
    for (let n = -warmups; n < iterations; n++) {
      await this.aligned(() => {
        if (this.#alignment === null) enqueue();
        this.stream.record(this.#events.start);
        enqueue();
        this.stream.record(this.#events.end);
      });
      if (n >= 0) mine[n] = (this.#events.end.elapsedSince(this.#events.start) * 1000) / rounds;
    }
    return this.slowest(mine);
  }

  /** Enqueues behind an alignment of all ranks, with cold caches, and waits for it. */
  async aligned(enqueue: () => void, pause = this.options.pause): Promise<void> {
    const { stream } = this;
    const alignment = this.#alignment;
    if (this.#eviction !== null) stream.fill(this.#eviction.address, this.#eviction.bytes, 0x5a);
    await this.world.barrier('an iteration');
    if (alignment !== null) this.#meet(alignment, 3, pause);
    enqueue();
    await stream.synchronize();
  }

  /** The maximum over ranks of each value. */
  async slowest(mine: Float64Array): Promise<number[]> {
    const all = await this.world.allGather(new Uint8Array(mine.buffer), 'times');
    return slowestRank(all.map((bytes) => new Float64Array(bytes.slice().buffer)));
  }

  /** Enqueues the flag barrier as what is measured: `rounds` meetings of all ranks in one kernel. */
  enqueueBarrier(rounds: number): void {
    if (this.#alignment !== null) this.#meet(this.#alignment, rounds, 0);
  }

  #meet({ barrier }: Alignment, rounds: number, pause: number): void {
    barrier.set('rounds', rounds);
    barrier.set('pause', pause);
    barrier.launch(this.stream);
  }

  /** @throws RankLostError where a rank did not come to an alignment. */
  async check(): Promise<void> {
    if (this.#alignment === null) return;
    const bytes = await this.stream.copyOut(this.#alignment.failedAt, 4);
    const failed = new Uint32Array(bytes.slice().buffer)[0]!;
    if (failed !== 0) throw new RankLostError([failed - 1], 'the benchmark’s alignment');
  }

  async dispose(): Promise<void> {
    await this.world.barrier('end of timing');
    this.#eviction?.free();
    this.#alignment?.window.close();
  }
}
