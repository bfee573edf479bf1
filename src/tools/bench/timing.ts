/**
 * How a time is measured. The rounds of one measurement are captured in a graph on every rank. An iteration is then:
 * cold caches (a fill larger than L2), all ranks aligned on the device, an event, the graph, an event. Its time is
 * what passed between the events ÷ the rounds in the graph; the maximum over ranks counts.
 *
 * The alignment is a kernel: all ranks meet by flags, wait a moment in which the hosts enqueue the graphs, and meet
 * again. Without it the time would hold how much later one host launches than another. Ranks of several nodes have no
 * flags in common: there everything is enqueued twice, and the first time, in which ranks meet by what is measured, is not counted.
 *
 * Sustained, the graph is as long as it takes, and is repeated without a pause: clocks and power then are those of steady work.
 */

import { ArgumentError, RankLostError } from '../../base/errors.js';
import { CudaDevice, openNvml } from '../../gpu/cuda/index.js';
import type { Device, Graph, Stream } from '../../gpu/index.js';
import type { World } from '../../net/world/index.js';
import { createFlagBarrier, flagBarrierKernel } from '../../verify/kernels/index.js';
import { type Power, perMillisecond, type Spread, slowest, spread } from './statistics.js';

/** The work that is enqueued for round n; steps that NCCL must see as groups of their own are separate. */
export type Steps = readonly ((round: number) => void)[];

/** Wraps what all ranks of a process enqueue for one step: NCCL's group. */
export type Grouping = (enqueueAll: () => void) => void;

/**
 * The ranks of this process. In a world of one process all ranks share a thread, and some calls must be made for all
 * of them at once: a rank that waited inside such a call for the others would keep them from ever making theirs.
 */
export class Crew {
  readonly #brought = new Map<number, unknown>();

  /**
   * When every rank of the world has come, runs `body` once in each process, with what its ranks brought, in the
   * order of their ranks. Resolves when that is done everywhere. An error of `body` reaches the rank that ran it.
   */
  async together<T>(world: World, mine: T, body: (all: readonly T[]) => void): Promise<void> {
    this.#brought.set(world.rank, mine);
    await world.barrier('gathering ranks');
    const ranks = [...this.#brought.keys()].sort((a, b) => a - b);
    if (ranks[0] === world.rank) body(ranks.map((rank) => this.#brought.get(rank) as T));
    await world.barrier('ranks gathered');
  }
}

/** Iterations before those that count: instruction caches, clocks, NCCL's connections. */
export const warmups = 3;

/** As every benchmark measures; simulated machines have nothing to warm up, and no hosts to wait for. */
const timingOf = ({ kind, cacheBytes }: Device, iterations: number, before: number) => ({
  iterations,
  warmups: kind === 'cuda' ? before : 0,
  /** Bytes of L2 to evict before each iteration; 0 leaves caches as they are. */
  l2Bytes: cacheBytes,
  /** Microseconds that the ranks wait on the device while the hosts enqueue. */
  pause: kind === 'cuda' ? 300 : 0,
});

type Meter = NonNullable<ReturnType<NonNullable<ReturnType<typeof openNvml>>['meter']>>;

/** @throws ArgumentError where nothing tells energy and clock. */
function meterOf(device: Device): Meter {
  const meter = device instanceof CudaDevice ? openNvml()?.meter(device.gpu.pciBusId) : undefined;
  if (meter == null)
    throw new ArgumentError('sustained', true, 'left out: nothing here tells a GPU’s energy and clock');
  return meter;
}

/** Microseconds that a rank waits for another before the measurement fails. */
const limit = 20_000_000;

export type Timing = Awaited<ReturnType<typeof createTiming>>;

/** Every rank calls this. `before` is the number of iterations to warm up, which do not count; `sustained`: what graphs hold is repeated for seconds. */
export async function createTiming(
  world: World,
  crew: Crew,
  iterations: number,
  { before = warmups, sustained = false } = {},
) {
  const { device } = world;
  const meter = sustained ? meterOf(device) : null;
  const options = timingOf(device, iterations, before);
  const { l2Bytes, pause } = options;
  // Ranks of several nodes have none.
  const alignment =
    world.topology.nodes > 1 ? null : await createFlagBarrier(world, flagBarrierKernel(world.ranks), limit);
  const stream = device.createStream();
  const eviction = l2Bytes === 0 ? null : device.allocate(2 * l2Bytes, 'what evicts L2');
  const [start, end] = [device.createEvent(), device.createEvent()];

  async function capture(rounds: number, steps: Steps, grouping: Grouping): Promise<Graph> {
    const mine: { readonly stream: Stream; readonly steps: Steps; graph?: Graph } = { stream, steps };
    await crew.together(world, mine, (all) => {
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

  /** Enqueues behind an alignment of all ranks, with cold caches, and waits for it. */
  async function aligned(enqueue: () => void, wait = pause): Promise<void> {
    if (eviction !== null) stream.fill(eviction.address, eviction.bytes, 0x5a);
    await world.barrier('an iteration');
    alignment?.meet(stream, 3, wait);
    enqueue();
    await stream.synchronize();
  }

  /** The time of `rounds` rounds that are enqueued directly. Every rank gets the same: of each iteration the slowest rank's. */
  async function timed(rounds: number, enqueue: () => void): Promise<Spread> {
    const { warmups } = options;
    const mine = new Float64Array(iterations);
    const unit = perMillisecond(device.kind);
    for (let n = -warmups; n < iterations; n++) {
      await aligned(() => {
        if (alignment === null) enqueue();
        stream.record(start);
        enqueue();
        stream.record(end);
      });
      if (n >= 0) mine[n] = (end.elapsedSince(start) * unit) / rounds;
    }
    return spread(await slowest(world, mine));
  }

  /** What `steps` take when they are repeated without a pause: of the slowest rank, and what a GPU needs for it. */
  async function lasting(steps: Steps, grouping: Grouping, meter: Meter): Promise<Spread> {
    const repeated = async (graph: Graph, rounds: number, launches: number) => {
      const heard: number[] = [];
      const before = meter.joules();
      const listen = setInterval(() => heard.push(meter.megahertz()), 20);
      await aligned(() => {
        stream.record(start);
        for (let n = 0; n < launches; n++) graph.launch(stream);
        stream.record(end);
      });
      clearInterval(listen);
      const milliseconds = end.elapsedSince(start);
      const megahertz = heard.reduce((a, b) => a + b, 0) / Math.max(1, heard.length);
      const watts = (1000 * (meter.joules() - before)) / milliseconds;
      return { each: milliseconds / (rounds * launches), watts, megahertz };
    };
    const short = await capture(4, steps, grouping);
    const [first] = await slowest(world, Float64Array.of((await repeated(short, 4, 2)).each));
    short.dispose();
    // All ranks repeat as often. A graph of a tenth of a second needs no host in between.
    const rounds = Math.max(1, Math.ceil(100 / first!));
    const graph = await capture(rounds, steps, grouping);
    await repeated(graph, rounds, 5);
    const { each, watts, megahertz } = await repeated(graph, rounds, 20);
    graph.dispose();
    const microseconds = (await slowest(world, Float64Array.of(each)))[0]! * 1000;
    const all = await world.allGather(new Uint8Array(Float64Array.of(watts, megahertz).buffer), 'power');
    const mean = (at: number) =>
      all.reduce((sum, own) => sum + new Float64Array(own.slice().buffer)[at]!, 0) / all.length;
    const power: Power = {
      ...{ watts: mean(0), megahertz: mean(1) },
      ...{ kilocycles: (microseconds * mean(1)) / 1000, joules: (mean(0) * microseconds) / 1e6 },
    };
    return { ...spread([microseconds]), power };
  }

  return {
    ...{ world, crew, options, stream, aligned, timed },

    /** The time of a round of `steps`, of which `rounds` are captured in a graph on all ranks. */
    async time(rounds: number, steps: Steps, grouping: Grouping = (body) => body()): Promise<Spread> {
      if (meter !== null) return lasting(steps, grouping, meter);
      const graph = await capture(rounds, steps, grouping);
      const times = await timed(rounds, () => graph.launch(stream));
      graph.dispose();
      return times;
    },

    /** Enqueues the flag barrier as what is measured: `rounds` meetings of all ranks in one kernel. */
    enqueueBarrier: (rounds: number): void => alignment?.meet(stream, rounds, 0),

    /** @throws RankLostError where a rank did not come to an alignment. */
    async check(): Promise<void> {
      const missed = (await alignment?.missed(stream)) ?? null;
      if (missed !== null) throw new RankLostError([missed], 'the benchmark’s alignment');
    },

    async dispose(): Promise<void> {
      await world.barrier('end of timing');
      eviction?.free();
      alignment?.close();
    },
  };
}
