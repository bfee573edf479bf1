/**
 * Weights that move while rounds run: experts change places, some by way of a place that is empty. Each rank goes over to a step
 * at rounds of its own, and no round sees half of an expert.
 */
import type { SimMachine } from '../../../gpu/sim/index.js';
import { ExpertParallel, emptyTensor, MovingWeights, readBits } from '../../../moe/index.js';
import type { Bits, Placement } from '../../../moe/layer/index.js';
import { World } from '../../../net/world/index.js';
import {
  compareCombined,
  ExampleExperts,
  expectedPlacedRound,
  layerOf,
  makeSources,
  mergeComparisons,
  shapeOfRounds,
} from '../../testing/index.js';
import type { CheckSubject } from '../subject.js';
import { requireSame } from './by-rank.js';

const shape = shapeOfRounds({ ranks: 2, experts: 4, topK: 2, maxTokens: 3, hidden: 8, dtype: 'bf16' });
const at = (...places: number[]): Placement => ({ experts: 4, ranks: 2, places });
/** 0 and 2 change places with each other by way of the empty one, 1 goes to both ranks, 3 to the other. */
const first = at(0, 1, 3, 2, 3, -1);
const last = at(2, 1, 3, 0, 1, 3);
const rounds = [1, 2, 3, 4, 5].map((seed) => makeSources(shape, [3, 2], seed));

interface Round {
  readonly placement: Placement;
  readonly out: Promise<Bits>;
}

async function runRank(world: World): Promise<readonly Round[]> {
  const { device, rank } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, layerOf(shape, { placement: first }));
  const spread = { blocks: 2, threads: 32, lives: first.places };
  const experts = await ExampleExperts.create(world, ep, stream, spread);
  const moving = new MovingWeights(world, experts.weights, first);
  const done: Round[] = [];
  const round = (): void => {
    const { topkIds, topkWeights, payloads, tokens } = rounds[done.length]![rank]!;
    const out = emptyTensor(device, 'bf16', [tokens, shape.output.hidden], 'out');
    const placement = ep.placement!;
    ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads }, stream);
    experts.run(stream);
    ep.combine(out, stream);
    const bits = readBits(out, stream);
    done.push({ placement, out: bits });
    quiet(bits);
  };
  // Rank 0 is a round ahead of the other.
  if (rank === 0) round();
  const going = moving.relocate(first, last, (placement) => ep.place(placement, stream), stream);
  quiet(going);
  while (done.length < rounds.length - 1) {
    round();
    await done.at(-1 - (1 - rank))?.out;
  }
  await going;
  round();
  await ep.synchronize(stream);
  await Promise.all(done.map(({ out }) => out));
  await ep.dispose();
  return done;
}

/** It is awaited later; whatever fails before says what went wrong. */
const quiet = (promise: Promise<unknown>): void => void promise.catch(() => {});

async function run(machine: SimMachine): Promise<void> {
  const ranks = await World.local({ ranks: 2, device: 'sim', sim: machine }, runRank);
  const compared = await Promise.all(
    rounds.map(async (sources, n) => {
      const placements = ranks.map((done) => done[n]!.placement);
      const expected = expectedPlacedRound(shape, sources, placements);
      const outs = await Promise.all(ranks.map((done) => done[n]!.out));
      return mergeComparisons(outs.map((out, rank) => compareCombined(shape, rank, out, expected[rank]!)));
    }),
  );
  requireSame(...compared);
}

export const moves: CheckSubject = {
  name: 'moving weights',
  kernels: ['one_sided_dispatch', 'example_experts', 'other_work', 'one_sided_combine'],
  configurations: [{ name: 'experts change ranks while rounds run', ranks: 2, run }],
};
