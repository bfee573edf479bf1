/** Rounds of any shape on the simulated machine, beside the reference. */
import fc from 'fast-check';
import { type MachineOptions, SimMachine } from '../../src/gpu/sim/index.js';
import { outputRowBytes, type Shape, type Source } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import {
  compareRounds,
  expectedRound,
  makeSources,
  type RoundsOptions,
  type RoutesOptions,
  runRounds,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';

/** Several rounds of one layer. */
export interface Trip {
  readonly shape: Shape;
  /** [round][rank] */
  readonly rounds: readonly (readonly Source[])[];
  readonly options: RoundsOptions;
}

/** Runs a trip; returns the machine, what every rank had, and how that compares with the reference. */
export async function travel({ shape, rounds, options }: Trip, on: Omit<MachineOptions, 'ranks'> = {}) {
  const machine = SimMachine.create({ ranks: shape.ranks, hostLines: false, ...on });
  const results = await World.local({ ranks: shape.ranks, device: 'sim', sim: machine }, (world) =>
    runRounds(world, shape, rounds, options),
  );
  const expected = rounds.map((sources) => expectedRound(shape, sources, options.weights ?? true));
  return { machine, results, comparison: compareRounds(shape, rounds, results, expected) };
}

const routes: fc.Arbitrary<RoutesOptions> = fc.record({
  router: fc.constantFrom<NonNullable<RoutesOptions['router']>>(
    { kind: 'uniform' },
    { kind: 'balanced' },
    { kind: 'remote' },
    { kind: 'repeated' },
    { kind: 'one-rank', target: 0 },
    { kind: 'zipf', exponent: 1 },
  ),
  holes: fc.constantFrom(0, 0.3, 1),
});

/** Ids that no expert has, as only the device may meet them. */
const strays = [-2, -(2 ** 31), 2 ** 31 - 1];

/** Random layers, inputs and ways to spread them, with at most this many ranks. */
export function trips(ranks: fc.Arbitrary<number>, most: { readonly tokens: number }): fc.Arbitrary<Trip> {
  const launch = fc.record({
    blocks: fc.integer({ min: 1, max: 5 }),
    warps: fc.integer({ min: 1, max: 3 }),
    /** All warps are one team, or each is one. */
    alone: fc.boolean(),
    parts: fc.integer({ min: 1, max: 3 }),
    inFlight: fc.integer({ min: 1, max: 8 }),
  });
  return fc
    .record({
      ranks,
      experts: fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 300 })),
      topK: fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 32 })),
      maxTokens: fc.integer({ min: 1, max: most.tokens }),
      hidden: fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(8, 16, 64, 264)),
      dtype: fc.constantFrom('bf16' as const, 'f16' as const, 'f32' as const),
      extra: fc.array(fc.integer({ min: 1, max: 50 }), { maxLength: 7 }),
      routes,
      stray: fc.boolean(),
      seed: fc.integer({ min: 0, max: 2 ** 30 }),
      rounds: fc.integer({ min: 1, max: 3 }),
      weights: fc.boolean(),
      counts: fc.boolean(),
      inspect: fc.boolean(),
      dispatch: launch,
      combine: launch,
      way: fc.constantFrom('push' as const, 'pull' as const),
      ahead: fc.integer({ min: 1, max: 3 }),
      tuned: fc.boolean(),
    })
    .map((of) => {
      const { ranks, experts, maxTokens, hidden, dtype, extra, seed, weights, counts, inspect } = of;
      const topK = Math.min(of.topK, experts);
      const shape = shapeOfRounds({ ranks, experts, topK, maxTokens, hidden, dtype, extra });
      const rounds = Array.from({ length: of.rounds }, (_, n) => {
        // Uneven, some empty, and different in every round.
        const tokens = Array.from({ length: ranks }, (_, r) => (seed + r * 3 + n) % (maxTokens + 1));
        const sources = makeSources(shape, tokens, seed + n, of.routes);
        if (of.stray) for (const { topkIds } of sources) topkIds.set(strays.slice(0, topkIds.length));
        return sources;
      });
      const spread = ({ warps: least, alone, ...launch }: typeof of.dispatch) => {
        const warps = Math.ceil(Math.max(least * 32, ranks) / 32);
        return { ...launch, threads: warps * 32, teams: alone ? 1 : warps };
      };
      // Only whole vectors are pushed.
      const pushable = outputRowBytes(shape) % 16 === 0;
      const tuning = {
        dispatch: spread(of.dispatch),
        combine: { ...spread(of.combine), way: pushable ? of.way : ('pull' as const), ahead: of.ahead },
      };
      return { shape, rounds, options: { weights, counts, inspect, ...(of.tuned && { tuning }) } };
    });
}

/** A trip in which every rank brings maxTokens to each round. */
export function fullTrip(shape: Shape, count: number, options: RoundsOptions = {}): Trip {
  const rounds = Array.from({ length: count }, (_, n) => makeSources(shape, shape.maxTokens, n + 1));
  return { shape, rounds, options };
}
