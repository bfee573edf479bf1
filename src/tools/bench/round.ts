/** Heddle's own round, as the benchmark enqueues it, and a look at whether it brings the right bytes. */

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
import { createInputs, type Rig } from './inputs.js';
import { type SentRound, type SentRounds, shadowOf } from './network/sent.js';
import { wrongResult } from './run.js';
import { quantile, type Spread, slowest } from './statistics.js';
import type { Steps } from './timing.js';
import { shapeOf, type Workload } from './workload.js';

/** Rows that `verify` looks at on each rank, in each phase. */
const sample = 24;

/** Rounds of a breakdown: few, so that all of them are enqueued while the ranks are still being aligned. */
const breakdownRounds = 4;
const breakdownPause = 2000;

/** `routeSets[set][rank]`. Every rank calls it. */
export async function createRound(
  rig: Rig,
  of: Workload,
  routeSets: readonly (readonly Routes[])[],
  how: Pick<
    ExpertParallelOptions,
    'family' | 'transport' | 'tuning' | 'split' | 'sms' | 'placement' | 'waits'
  > = {},
) {
  const { timing, noise } = rig;
  const { world, stream } = timing;
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
  /** The routes of the first set; where experts are placed their ids are places. */
  const routes =
    placement === undefined ? first : placedRoutes(shapeOf(of, first[0]!.tokens), first, placement, nodes);
  const mine = routeSets.map((routes) => routes[world.rank]!);
  const inputs = createInputs(rig, of, mine);
  const { output } = ep.received;
  noise.fill(stream, output.data, output.bytes);
  await stream.synchronize();

  /** Dispatch and combine back to back; no experts between them. */
  const both: Steps = [
    (round) => {
      const set = inputs.at(round);
      ep.dispatch(set.inputs, stream);
      ep.combine(set.out, stream);
    },
  ];
  const wrong = (phase: string, what: string, source: number, token: number) =>
    wrongResult(
      `${phase} brought wrong bytes to rank ${world.rank}: ${what} of rank ${source}'s token ${token}`,
    );
  return {
    ep,
    both,

    /** The writes of this rank's proxy in a round of each input set; null where there is none. They must be the layer's first rounds. */
    async sent(): Promise<SentRounds | null> {
      const { plan, memory } = roundsInside(ep)[0]!.loaded;
      if (plan.wire === null) return null;
      const shadow = await shadowOf(plan.wire, memory.wire!, world);
      const rounds: SentRound[] = [];
      for (const set of inputs.sets) {
        ep.dispatch(set.inputs, timing.stream);
        await timing.stream.synchronize();
        const dispatch = shadow();
        ep.combine(set.out, timing.stream);
        await timing.stream.synchronize();
        rounds.push({ dispatch, combine: shadow() });
      }
      await ep.synchronize(timing.stream);
      const { layout, program } = plan.wire;
      return { rounds, wireBytes: layout.bytes, reach: program.reach };
    },

    /**
     * Dispatch after dispatch, which no ExpertParallel allows: nobody may read what they bring. Only of a round whose combine
     * pulls; a pushing one says when slots may be written again. There is no such thing for combine: rows of a pushing one say
     * themselves that they have come, so two in a row would mistake each other's.
     */
    dispatch(): Steps {
      const { inputs: taken, brings, loaded } = roundsInside(ep)[0]!;
      return [
        (round) => {
          taken.take(inputs.at(round).inputs, brings, stream);
          loaded.run(['dispatchSend', 'dispatchRecv'], brings, stream);
        },
      ];
    },

    async time(rounds: number, steps: Steps): Promise<Spread> {
      const time = await timing.time(rounds, steps);
      await ep.synchronize(timing.stream);
      return time;
    },

    /** How long ranks wait for each other, where they count it, in rounds that are launched directly. */
    async waits(): Promise<Waits> {
      for (let n = 0; n < timing.options.iterations; n++) {
        await timing.aligned(() => {
          for (let round = 0; round < breakdownRounds; round++) for (const step of both) step(round);
        }, breakdownPause);
      }
      await ep.synchronize(stream);
      return ep.waits(stream);
    },

    /** Each kernel between events of its own, launched directly. */
    async breakdown() {
      const events = Array.from({ length: 4 * breakdownRounds }, () => world.device.createEvent());
      const times = { gap: [] as number[], dispatch: [] as number[], combine: [] as number[] };
      for (let n = 0; n < timing.options.warmups + timing.options.iterations; n++) {
        await timing.aligned(() => {
          for (let round = 0; round < breakdownRounds; round++) {
            const set = inputs.at(round);
            const [before, start, middle, end] = events.slice(4 * round) as [never, never, never, never];
            stream.record(before);
            stream.record(start);
            ep.dispatch(set.inputs, stream);
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
        const facts = 'facts' in program ? (program as CudaProgram).facts : null;
        // The median of the slowest rank's time between the events around it; `gap` of it is the events' own. `facts` are the
        // compiler's, null on the simulator.
        return { kernel, time: quantile(times[kernel], 0.5), gap, blocks, threads, facts };
      });
    },

    /**
     * One more round, into planes that were wiped before it; some rows of it are compared. All ranks hold the same
     * noise, so each knows what its peers sent, and that combine adds up n equal rows.
     * @throws HeddleError where a byte is wrong: figures of a wrong kernel are worth nothing.
     */
    async verify(): Promise<void> {
      const set = inputs.sets[0]!;
      const tokens = routes[0]!.tokens;
      for (const plane of Object.values(ep.received.payloads)) stream.fill(plane.data, plane.bytes, 0);
      stream.fill(set.out.data, set.out.bytes, 0);
      // Wiped everywhere before anybody sends.
      await stream.synchronize();
      await world.barrier('wiping');
      ep.dispatch(set.inputs, stream);
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
          if (!same(got, noise.at(token * rowBytes, rowBytes))) throw wrong('dispatch', name, source, token);
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
          throw wrong('combine', 'output', world.rank, token);
      }
    },

    async dispose(): Promise<void> {
      await ep.dispose();
      inputs.free();
    },
  };
}

const same = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;
