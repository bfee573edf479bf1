/**
 * `heddle demo --rebalance` and `--lose`: rounds on the simulated machine in which experts change places and ranks stop, each
 * round beside the reference.
 */
import { HeddleError, RankLostError, RepeatRoundsError } from '../base/errors.js';
import { SimMachine } from '../gpu/sim/index.js';
import { ExpertParallel, emptyTensor, MovingWeights, readBits, tensorFrom } from '../moe/index.js';
import {
  type Bits,
  bitsOf,
  expertsOf,
  type Placement,
  rankOfPlace,
  rebalance,
  type Shape,
  type Source,
  withoutRanks,
} from '../moe/layer/index.js';
import { World } from '../net/world/index.js';
import {
  byPopularity,
  type Comparison,
  compareCombined,
  ExampleExperts,
  expectedPlacedRound,
  layerOf,
  makeSources,
  mergeComparisons,
} from '../verify/testing/index.js';

export interface ChangesOptions {
  readonly seed: number;
  /** Whether experts change places after some rounds. */
  readonly rebalance: boolean;
  /** How many ranks stop in the middle of a later round. */
  readonly lose: number;
}

/** A stretch of rounds in which the same experts were in the same places. */
export interface Stretch {
  /** The first round of the stretch, and the last, counted from 1. */
  readonly from: number;
  readonly to: number;
  readonly lost: readonly number[];
  readonly places: readonly number[];
  readonly routes: readonly number[];
  /** Routes to experts that lived nowhere. */
  readonly dropped: number;
}

export type ChangesResult = Awaited<ReturnType<typeof demoChanges>>;

/** Rounds of each part of the demonstration, and those that run while experts move. */
const some = 4;
const meanwhile = 3;

export async function demoChanges(shape: Shape, how: ChangesOptions, progress: (what: string) => void) {
  const started = performance.now();
  const plan = planOf(shape, how);
  progress(`${plan.last} rounds …`);
  const { ranks } = shape;
  const sim = SimMachine.create({ ranks, seed: `${how.seed}`, schedule: 'random' });
  const rounds = Array.from({ length: ranks }, (): Round[] => []);
  const told: Told[] = [];
  const world = World.local({ ranks, device: 'sim', sim }, async (world) => {
    told.push(await runRank(world, plan, sim, rounds[world.rank]!));
  });
  await world.catch((error: unknown) => {
    if (!(error instanceof HeddleError && error.code === 'HEDDLE_KILLED')) throw error;
  });
  progress('comparing with the reference …');
  // A rank that had not begun a round is not told that it is repeated.
  const repeated = [...new Set(told.flatMap(({ repeated }) => repeated))].sort((a, b) => a - b);
  const { moved, dropped } = told[0]!;
  return {
    ...{ shape, placesOfRank: plan.first.places.length / ranks, repeated, moved },
    ...{ stretches: stretchesOf(plan, rounds, dropped), comparison: compare(plan, rounds) },
    seconds: Math.round((performance.now() - started) / 10) / 100,
  };
}

type Plan = ReturnType<typeof planOf>;

function planOf(shape: Shape, { seed, rebalance: moves, lose }: ChangesOptions) {
  const { ranks, experts, maxTokens } = shape;
  const own = Math.ceil(experts / ranks);
  // Each expert may live twice where ranks are lost; else every rank has a place to spare.
  const room = lose > 0 ? 2 * own : own + 1;
  const inOrder = Array.from({ length: ranks * room }, (_, place) => {
    const [rank, i] = [Math.floor(place / room), place % room];
    const { first, count } = expertsOf(shape, rank);
    return i < count ? first + i : -1;
  });
  const before = moves ? 2 * some + meanwhile : some;
  const last = lose > 0 ? before + some : before;
  const first: Placement = moves
    ? { experts, ranks, places: inOrder }
    : rebalance(new Array<number>(experts).fill(1), { ranks, places: inOrder.length });
  return {
    ...{ shape, first },
    // The tokens of each round and rank: [round − 1][rank].
    sources: roundsOf(
      shape,
      makeSources({ ...shape, maxTokens: last * maxTokens }, last * maxTokens, seed, favourites),
      last,
    ),
    // Experts change places behind the first of these rounds, and ranks stop in the second; Infinity for never.
    ...{ rebalanceBehind: moves ? some : Number.POSITIVE_INFINITY, last },
    fallsIn: lose > 0 ? before + 1 : Number.POSITIVE_INFINITY,
    victims: byPopularity(ranks, seed).slice(0, lose),
  };
}

/** A few experts get most tokens, the same in all rounds. */
const favourites = { router: { kind: 'zipf', exponent: 1 } } as const;

function roundsOf({ maxTokens, topK, payloads }: Shape, all: readonly Source[], count: number): Source[][] {
  const cut = <T extends { subarray(from: number, to: number): T }>(of: T, n: number, each: number): T =>
    of.subarray(n * maxTokens * each, (n + 1) * maxTokens * each);
  return Array.from({ length: count }, (_, n) =>
    all.map(({ topkIds, topkWeights, payloads: rows }) => ({
      ...{ tokens: maxTokens, topkIds: cut(topkIds, n, topK), topkWeights: cut(topkWeights!, n, topK) },
      payloads: Object.fromEntries(
        payloads.map(({ name, rowBytes }) => [name, cut(rows[name] as Uint8Array<ArrayBuffer>, n, rowBytes)]),
      ),
    })),
  );
}

/** The result of a rank's round, of its last run where it was repeated. */
interface Round {
  readonly out: Bits;
  readonly placement: Placement;
  readonly masked: readonly number[];
  /** Routes that came to its places. */
  readonly routes: number;
}

/** A rank that came to the end. */
interface Told {
  /** Experts that went to another rank, and rounds that were run meanwhile. */
  readonly moved: { readonly experts: number; readonly rounds: number };
  /** Rounds that were run once more, since ranks were lost in them. */
  readonly repeated: readonly number[];
  /** Routes that went nowhere, of all ranks that are left. */
  readonly dropped: number;
}

/** One rank: all that a user of Heddle has to write so that rounds go on. `rounds`: [round − 1], which it fills. */
async function runRank(world: World, plan: Plan, sim: SimMachine, rounds: Round[]): Promise<Told> {
  const { shape, first, sources, victims, last } = plan;
  const { device, rank } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(
    world,
    layerOf(shape, { onLoss: 'mask', placement: first, counts: true }),
  );
  const experts = await ExampleExperts.create(world, ep, stream, {
    blocks: 4,
    threads: 32,
    lives: first.places,
  });
  const moving = new MovingWeights(world, experts.weights, first);
  const repeated: number[] = [];
  let moved: Told['moved'] = { experts: 0, rounds: 0 };
  let relocation: Promise<void> | null = null;
  let left = 0;

  for (let n = 1; ; n++) {
    try {
      if (n > last && (await allAreDone(world))) break;
      if (n > last) {
        await ep.synchronize(stream);
        continue;
      }
      // Ranks were lost: experts that live elsewhere, too, get their tokens there.
      const { masked } = world;
      if (masked.length > left) {
        left = masked.length;
        ep.place(withoutRanks(ep.placement!, masked), stream);
      }
      if (n === plan.rebalanceBehind + 1) {
        const { routed } = await ep.statistics(stream);
        const next = rebalance(routed, { ranks: shape.ranks, places: first.places.length });
        moved = { experts: arrivals(first, next), rounds: meanwhile };
        const place = (placement: Placement): void => ep.place(placement, stream);
        relocation = moving.relocate(first, next, place, stream);
      }
      // Rounds ran on while experts moved. From here on all rounds must go by the new placement, so the move has to end first.
      if (n === plan.rebalanceBehind + 1 + meanwhile) await relocation;
      if (n === plan.fallsIn && victims.includes(rank)) sim.killAfter([rank], 2);
      const placement = ep.placement!;
      const { topkIds, topkWeights, payloads, tokens } = sources[n - 1]![rank]!;
      const { dtype, hidden } = shape.output;
      const out = emptyTensor(device, dtype, [tokens, hidden]);
      const x = tensorFrom(device, stream, bitsOf(dtype, payloads.x!), dtype, [tokens, hidden]);
      const { counts } = ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads: { x } }, stream);
      const arrived = readBits(counts!, stream);
      arrived.catch(() => {}); // `synchronize` reports the error
      experts.run(stream);
      ep.combine(out, stream);
      await ep.synchronize(stream);
      const routes = Array.from(await arrived, Number).reduce((a, b) => a + b);
      rounds[n - 1] = { out: await readBits(out, stream), placement, masked, routes };
    } catch (error) {
      if (!(error instanceof RepeatRoundsError)) throw error;
      repeated.push(error.round);
      n = error.round - 1;
    }
  }
  const dropped = (await ep.statistics(stream)).dropped.reduce((a, b) => a + b);
  await ep.dispose();
  return { moved, repeated, dropped };
}

/** Nobody leaves before all know that nothing is repeated. */
function allAreDone(world: World): Promise<boolean> {
  return world.barrier('the rounds are done').then(
    () => true,
    (error: unknown) => {
      if (error instanceof RankLostError) return false;
      throw error;
    },
  );
}

/** How many experts come to places on ranks that did not have them. */
const arrivals = (before: Placement, after: Placement): number => {
  const on = (of: Placement) => of.places.map((expert, place) => `${expert} on ${rankOfPlace(of, place)}`);
  const had = new Set(on(before));
  return on(after).filter((one, place) => after.places[place] !== -1 && !had.has(one)).length;
};

const whole = ({ last }: Plan, rounds: readonly (readonly Round[])[]): readonly Round[] =>
  rounds.find((own) => own.length === last)!;

/** Cuts the rounds into stretches: before experts moved, after that, and without the ranks that were lost. */
function stretchesOf(plan: Plan, rounds: readonly (readonly Round[])[], dropped: number): Stretch[] {
  const { rebalanceBehind: behind } = plan;
  const stretches: Stretch[] = [];
  for (const [i, { placement, masked }] of whole(plan, rounds).entries()) {
    if (i >= behind && i < behind + meanwhile) continue;
    const routes = rounds.map((own, rank) => (masked.includes(rank) ? 0 : own[i]!.routes));
    const before = stretches.at(-1);
    if (before !== undefined && before.to === i && before.lost.length === masked.length)
      stretches[stretches.length - 1] = {
        ...{ ...before, to: i + 1 },
        routes: before.routes.map((sum, rank) => sum + routes[rank]!),
      };
    else
      stretches.push({
        ...{ from: i + 1, to: i + 1, lost: masked, places: placement.places, routes },
        dropped: masked.length > 0 ? dropped : 0,
      });
  }
  return stretches;
}

/** Every round of every rank that took part to the end of it, beside the reference. */
function compare(plan: Plan, rounds: readonly (readonly Round[])[]): Comparison {
  const { shape, sources } = plan;
  return mergeComparisons(
    whole(plan, rounds).flatMap(({ placement, masked }, i) => {
      const of = rounds.map((own, rank) => (masked.includes(rank) ? undefined : own[i]));
      const placements = of.map((round) => round?.placement ?? placement);
      const expected = expectedPlacedRound(shape, sources[i]!, placements, masked);
      return of.flatMap((round, rank) =>
        round === undefined ? [] : [compareCombined(shape, rank, round.out, expected[rank]!)],
      );
    }),
  );
}
