/** Heddle's own round, as the benchmark enqueues it, and a look at whether it brings the right bytes. */

import { HeddleError } from '../../base/errors.js';
import type { CudaProgram } from '../../gpu/cuda/index.js';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  roundsInside,
  row,
  type Waits,
} from '../../moe/index.js';
import {
  dtypes,
  fromF32,
  isExpert,
  ownerOf,
  placedRoutes,
  ranksOf,
  sharing,
  toF32,
} from '../../moe/layer/index.js';
import type { Routes } from '../../verify/testing/index.js';
import type { Rig } from './harness.js';
import { Inputs, type Noise } from './inputs.js';
import { type SentRound, type SentRounds, Shadow } from './network/sent.js';
import type { KernelNumbers } from './report.js';
import { quantile, type Spread, slowest } from './statistics.js';
import type { Steps, Timing } from './timing.js';
import { shapeOf, type Workload } from './workload.js';

/** Rows that `verify` looks at on each rank, in each phase. */
const sample = 24;

/** Rounds of a breakdown: few, so that all of them are enqueued while the ranks are still being aligned. */
const breakdownRounds = 4;
const breakdownPause = 2000;

export class Round {
  readonly #timing: Timing;
  readonly #of: Workload;
  readonly #inputs: Inputs;
  /** Those of the first set; where experts are placed their ids are places. */
  readonly #routes: readonly Routes[];

  private constructor(
    readonly ep: ExpertParallel,
    { timing, noise }: Rig,
    of: Workload,
    routeSets: readonly (readonly Routes[])[],
    routes: readonly Routes[],
  ) {
    const { world, stream } = timing;
    const mine = routeSets.map((routes) => routes[world.rank]!);
    this.#timing = timing;
    this.#of = of;
    this.#inputs = Inputs.create(world.device, stream, noise, of, mine);
    this.#routes = routes;
  }

  /** `routeSets[set][rank]`. Every rank calls it. */
  static async create(
    rig: Rig,
    of: Workload,
    routeSets: readonly (readonly Routes[])[],
    how: Pick<
      ExpertParallelOptions,
      'family' | 'transport' | 'tuning' | 'split' | 'sms' | 'placement' | 'waits'
    > = {},
  ): Promise<Round> {
    const { world, stream } = rig.timing;
    const ep = await ExpertParallel.create(world, {
      experts: of.experts,
      topK: of.topK,
      replicas: of.replicas,
      maxTokens: routeSets[0]![0]!.tokens,
      payloads: Object.fromEntries(of.payloads.map(({ name, rowBytes }) => [name, row('u8', rowBytes)])),
      output: { dtype: of.combineDtype, length: of.hidden },
      ...how,
    });
    const { placement } = how;
    const [first] = routeSets as [readonly Routes[]];
    const { nodes } = world.topology;
    const routes =
      placement === undefined ? first : placedRoutes(shapeOf(of, first[0]!.tokens), first, placement, nodes);
    const round = new Round(ep, rig, of, routeSets, routes);
    const { output } = ep.received;
    rig.noise.fill(stream, output.data, output.bytes);
    await stream.synchronize();
    return round;
  }

  /** The writes of this rank's proxy in a round of each input set; null where there is none. They must be the layer's first rounds. */
  async sent(): Promise<SentRounds | null> {
    const { ep } = this;
    const timing = this.#timing;
    const inputs = this.#inputs;
    const { wire } = roundsInside(ep)[0]!.loaded;
    if (wire === null) return null;
    const shadow = await Shadow.of(wire, timing.world);
    const rounds: SentRound[] = [];
    for (const set of inputs.sets) {
      ep.dispatch(set, timing.stream);
      await timing.stream.synchronize();
      const dispatch = shadow.take();
      ep.combine(set.out, timing.stream);
      await timing.stream.synchronize();
      rounds.push({ dispatch, combine: shadow.take() });
    }
    await ep.synchronize(timing.stream);
    const { layout, program } = wire.plan;
    return { rounds, wireBytes: layout.bytes, reach: program.reach };
  }

  /** Dispatch and combine back to back; no experts between them. */
  get both(): Steps {
    const { ep } = this;
    const inputs = this.#inputs;
    const { stream } = this.#timing;
    return [
      (round) => {
        const set = inputs.at(round);
        ep.dispatch(set, stream);
        ep.combine(set.out, stream);
      },
    ];
  }

  /**
   * Dispatch after dispatch, which no ExpertParallel allows: nobody may read what they bring. Only of a round whose combine
   * pulls; a pushing one says when slots may be written again. There is no such thing for combine: rows of a pushing one say
   * themselves that they have come, so two in a row would mistake each other's.
   */
  get dispatch(): Steps {
    const { inputs, brings, loaded } = roundsInside(this.ep)[0]!;
    const { stream } = this.#timing;
    return [
      (round) => {
        inputs.take(this.#inputs.at(round), brings, stream);
        loaded.run(['dispatchSend', 'dispatchRecv'], brings, stream);
      },
    ];
  }

  async time(rounds: number, steps: Steps): Promise<Spread> {
    const time = await this.#timing.time(rounds, steps);
    await this.ep.synchronize(this.#timing.stream);
    return time;
  }

  /** How long ranks wait for each other, where they count it, in rounds that are launched directly. */
  async waits(): Promise<Waits> {
    const { ep } = this;
    const { stream, options } = this.#timing;
    for (let n = 0; n < options.iterations; n++) {
      await this.#timing.aligned(() => {
        for (let round = 0; round < breakdownRounds; round++) for (const step of this.both) step(round);
      }, breakdownPause);
    }
    await ep.synchronize(stream);
    return ep.waits(stream);
  }

  /** Each kernel between events of its own, launched directly; `gap` is what the events themselves cost. */
  async breakdown(): Promise<KernelNumbers[]> {
    const { ep } = this;
    const timing = this.#timing;
    const inputs = this.#inputs;
    const { world, stream } = timing;
    const events = Array.from({ length: 4 * breakdownRounds }, () => world.device.createEvent());
    const times = { gap: [] as number[], dispatch: [] as number[], combine: [] as number[] };
    for (let n = 0; n < timing.options.warmups + timing.options.iterations; n++) {
      await timing.aligned(() => {
        for (let round = 0; round < breakdownRounds; round++) {
          const set = inputs.at(round);
          const [before, start, middle, end] = events.slice(4 * round) as [never, never, never, never];
          stream.record(before);
          stream.record(start);
          ep.dispatch(set, stream);
          stream.record(middle);
          ep.combine(set.out, stream);
          stream.record(end);
        }
      }, breakdownPause);
      // The first round pays for cold instruction caches and for the hosts that are still at it.
      const mine = Float64Array.from({ length: 3 * (breakdownRounds - 1) }, (_, i) => {
        const at = 4 * (1 + Math.floor(i / 3)) + (i % 3);
        return events[at + 1]!.elapsedSince(events[at]!) * 1000;
      });
      const all = await slowest(world, mine);
      if (n < timing.options.warmups) continue;
      for (const [i, time] of all.entries())
        times[(['gap', 'dispatch', 'combine'] as const)[i % 3]!].push(time);
    }
    for (const event of events) event.dispose();
    await ep.synchronize(stream);
    const gap = quantile(times.gap, 0.5);
    const { steps } = roundsInside(ep)[0]!.loaded;
    return (['dispatch', 'combine'] as const).map((kernel) => {
      const { program, blocks, threads } = [...steps[`${kernel}Send`], ...steps[`${kernel}Recv`]].at(-1)!;
      const facts = 'facts' in program ? (program as CudaProgram<unknown>).facts : null;
      return { kernel, time: quantile(times[kernel], 0.5), gap, blocks, threads, facts };
    });
  }

  /**
   * One more round, into planes that were wiped before it; some rows of it are compared. All ranks hold the same
   * noise, so each knows what its peers sent, and that combine adds up n equal rows.
   * @throws HeddleError where a byte is wrong: figures of a wrong kernel are worth nothing.
   */
  async verify(noise: Noise): Promise<void> {
    const { ep } = this;
    const of = this.#of;
    const timing = this.#timing;
    const { world, stream } = timing;
    const set = this.#inputs.sets[0]!;
    const routes = this.#routes;
    const tokens = routes[0]!.tokens;
    for (const plane of Object.values(ep.received.payloads)) stream.fill(plane.data, plane.bytes, 0);
    stream.fill(set.out.data, set.out.bytes, 0);
    // Wiped everywhere before anybody sends.
    await stream.synchronize();
    await world.barrier('wiping');
    ep.dispatch(set, stream);
    ep.combine(set.out, stream);
    await ep.synchronize(stream);

    const { shape } = ep;
    const { groups, replicas } = sharing(shape);
    const slots = groups * tokens;
    for (let n = 0; n < Math.min(sample, slots); n++) {
      const slot = Math.floor((n * slots) / Math.min(sample, slots));
      const [source, token] = [Math.floor(slot / tokens), slot % tokens];
      const ids = routes[source * replicas]!.topkIds.subarray(token * of.topK, (token + 1) * of.topK);
      if (!ids.some((id) => isExpert(shape, id) && ownerOf(shape, id) === world.rank)) continue;
      for (const { name, rowBytes } of of.payloads) {
        const plane = ep.received.payloads[name]!;
        const got = await stream.copyOut(plane.data + slot * rowBytes, rowBytes);
        if (!same(got, noise.at(token * rowBytes, rowBytes)))
          throw this.#wrong('dispatch', name, source, token);
      }
    }
    const outBytes = of.hidden * dtypes[of.combineDtype].size;
    for (let n = 0; n < Math.min(sample, tokens); n++) {
      const token = Math.floor((n * tokens) / Math.min(sample, tokens));
      const mine = routes[world.rank]!;
      const owners = ranksOf(shape, mine.topkIds.subarray(token * of.topK, (token + 1) * of.topK));
      const storage = dtypes[of.combineDtype].storage;
      // A sum of n equal values is exact in f32 where a value has few bits, so the order of addition does not matter. Values of
      // f32 have all 24 bits: there the order does not matter up to 6 rows.
      if (of.combineDtype === 'f32' && owners.length > 6) continue;
      const partial = noise.at((Math.floor(world.rank / replicas) * tokens + token) * outBytes, outBytes);
      const values = toF32(of.combineDtype, new storage(partial.slice().buffer, 0, of.hidden));
      const sum = fromF32(
        of.combineDtype,
        values.map((value) => value * owners.length),
      );
      const got = await stream.copyOut(set.out.data + token * outBytes, outBytes);
      if (!same(got, new Uint8Array(sum.buffer, sum.byteOffset, sum.byteLength)))
        throw this.#wrong('combine', 'output', world.rank, token);
    }
  }

  async dispose(): Promise<void> {
    await this.ep.dispose();
    this.#inputs.free();
  }

  #wrong(phase: string, what: string, source: number, token: number): HeddleError {
    const { rank } = this.#timing.world;
    return new HeddleError(
      'HEDDLE_WRONG_RESULT',
      `${phase} brought wrong bytes to rank ${rank}: ${what} of rank ${source}'s token ${token}; ` +
        'nothing that this run measured counts. Please report it with the output of `heddle doctor`',
    );
  }
}

const same = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;
