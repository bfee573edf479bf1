/** `heddle demo`: runs a round twice, and compares it with the reference. */

import { inRange } from '../gpu/index.js';
import { SimMachine } from '../gpu/sim/index.js';
import { ExpertParallel, emptyTensor, readBits, tensorFrom } from '../moe/index.js';
import { bitsOf, type Shape, type Source, traffic } from '../moe/layer/index.js';
import { World } from '../net/world/index.js';
import { Clock } from '../tools/bench/index.js';
import {
  compareBits,
  compareCombined,
  ExampleExperts,
  expectedRound,
  layerOf,
  makeSources,
  mergeComparisons,
} from '../verify/testing/index.js';

export type DemoResult = Awaited<ReturnType<typeof demoRounds>>;

export async function demoRounds(
  shape: Shape,
  { seed, simulated }: { readonly seed: number; readonly simulated: boolean },
  progress: (what: string) => void,
) {
  const started = performance.now();
  const { ranks, output } = shape;
  const sources = makeSources(shape, shape.maxTokens, seed);
  const round = (schedule: 'in-order' | 'random') => {
    const device = simulated
      ? ({ device: 'sim', sim: SimMachine.create({ ranks, schedule }) } as const)
      : ({ device: 'cuda' } as const);
    return World.local({ ranks, ...device }, (world) => runRank(world, shape, sources[world.rank]!));
  };
  progress('dispatch, experts, combine …');
  const first = await round('in-order');
  progress(`the same again${simulated ? ', in another order' : ''} …`);
  const again = await round('random');
  progress('comparing with the reference …');
  const expected = expectedRound(shape, sources, true);
  return {
    ...{ shape, simulated, traffic: traffic(shape, sources) },
    comparison: mergeComparisons(
      first.map(({ out }, rank) => compareCombined(shape, rank, out, expected[rank]!)),
    ),
    bitwiseRepeatable: first.every(
      ({ out }, rank) => compareBits('out', output.dtype, again[rank]!.out, out).different === 0,
    ),
    // The first round on GPUs also loads the kernels.
    spans: again.flatMap(({ spans }) => spans),
    seconds: Math.round((performance.now() - started) / 10) / 100,
  };
}

/** One rank's round: all that a user of Heddle has to write, and a clock beside it. */
export async function runRank(
  world: World,
  shape: Shape,
  { tokens, topkIds, topkWeights, payloads }: Source,
) {
  const { dtype, hidden } = shape.output;
  const { device } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, layerOf(shape));
  const experts = await ExampleExperts.create(world, ep, stream);
  const x = tensorFrom(device, stream, bitsOf(dtype, payloads.x!), dtype, [tokens, hidden]);
  const out = emptyTensor(device, dtype, [tokens, hidden]);

  const round = (): void => {
    ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads: { x } }, stream);
    inRange('experts', stream, () => experts.run(stream));
    ep.combine(out, stream);
  };
  const clock = new Clock(device);
  clock.watch(stream, round);
  await ep.synchronize(stream);

  const spans = clock.stop(world.rank);
  const result = { out: await readBits(out, stream), spans };
  await ep.dispose();
  return result;
}
