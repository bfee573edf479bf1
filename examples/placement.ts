/**
 * Experts that most tokens want get places on several ranks: the load of the busiest rank before and after. The experts here give
 * rows back as they came; those of a `MoeLayer` have weights, which `relocate` moves.
 */
import { ExpertParallel, emptyTensor, rebalance, row, World } from 'heddle';

const [ranks, experts, topK, hidden, tokens, places] = [4, 16, 2, 64, 64, 20];

/** Tokens of which most want few experts. */
const topkIds = Int32Array.from({ length: tokens * topK }, (_, i) =>
  i % topK === 0 ? Math.floor(4 * Math.abs(Math.sin(i)) ** 3) : 4 + (i % 12),
);

const loads = await World.local({ ranks }, async (world) => {
  const { device } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, {
    ...{ experts, topK, maxTokens: tokens, payloads: { x: row('f32', hidden) }, output: row('f32', hidden) },
    placement: rebalance(new Array(experts).fill(1), { ranks, places }),
  });
  const inputs = {
    topkIds,
    topkWeights: new Float32Array(tokens * topK).fill(1 / topK),
    payloads: { x: new Float32Array(tokens * hidden).fill(1) },
  };
  const out = emptyTensor(device, 'f32', [tokens, hidden]);
  /** How many routes each expert has had, after so many rounds. */
  const routed = async (rounds: number): Promise<readonly number[]> => {
    for (let round = 0; round < rounds; round++) {
      const received = ep.dispatch(inputs, stream);
      stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
      ep.combine(out, stream);
    }
    await ep.synchronize(stream);
    return (await ep.statistics(stream)).routed;
  };
  /** The busiest rank's load over the mean: the tokens of an expert are dealt out evenly to its places. */
  const busiest = (of: readonly number[]): number => {
    const { places: where } = ep.placement!;
    const load = new Array<number>(ranks).fill(0);
    for (const [place, expert] of where.entries())
      if (expert >= 0)
        load[Math.floor((place * ranks) / where.length)]! +=
          of[expert]! / where.filter((one) => one === expert).length;
    return (Math.max(...load) * ranks) / load.reduce((a, b) => a + b);
  };

  const counted = await routed(4);
  const before = busiest(counted);
  ep.place(rebalance(counted, { ranks, places }), stream);
  await routed(4);
  const after = busiest(counted);
  await ep.dispose();
  return { before, after };
});

const { before, after } = loads[0]!;
console.log(`the busiest rank got ${before.toFixed(2)} × the mean, and gets ${after.toFixed(2)} ×`);
